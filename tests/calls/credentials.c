/* A change of rights reaches every thread of the process at once: user, group, capabilities, no_new_privs, seccomp. After it
 * there is nothing left with the old rights, and what needs one thread (a namespace of users) can be done. Where a right is
 * missing from the start, both runs say so. */
#include "common.h"
#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

enum { HEAP = 20 << 20 };
static char *area;
static volatile int stop;

static void work(uint64_t seed) {
    if (!area) area = fresh(HEAP / PAGE);
    noise(area, HEAP, seed), check_noise(area, HEAP, seed);
}
/* The line of every thread must be the caller's; tells how many threads there are. */
static int same_in_every_thread(const char *name, char *value, size_t room) {
    DIR *d = opendir("/proc/self/task");
    CHECK(d);
    int threads = 0;
    char path[300], line[512];
    FILE *own = fopen("/proc/thread-self/status", "r");
    CHECK(own);
    *value = 0;
    while (fgets(line, sizeof line, own))
        if (!strncmp(line, name, strlen(name))) snprintf(value, room, "%s", line);
    fclose(own);
    CHECK(*value);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        threads++;
        while (fgets(line, sizeof line, f))
            if (!strncmp(line, name, strlen(name)) && strcmp(line, value))
                die("thread %s has %sthe caller has %s", e->d_name, line, value);
        fclose(f);
    }
    closedir(d);
    return threads;
}
static void all_same(void) {
    static const char *const lines[] = {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:",
        "NoNewPrivs:", "Seccomp:", "Seccomp_filters:"};
    char value[512];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) same_in_every_thread(lines[i], value, sizeof value);
}
static void after(void) {
    all_same();
    work(2);
    all_same();
    expect_exit(CHILD({ work(3), all_same(); }), 0);
    check_noise(area, HEAP, 2);
    pid_t pid = vfork();
    if (!pid) {
        area[5]++, area[5]--;
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    expect_exit(pid, 0);
    all_same();
}
static void allow_all(int sync) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_acct, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (sync)
        OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    else
        OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
    expect_errno(syscall(SYS_acct, NULL), EXDEV);
}
static void drop_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    OK(syscall(SYS_capset, &head, none));
}
static void *idle(void *arg) {
    while (!stop) sleep_ms(1);
    return arg;
}
static void change(int way) {
    work(1);
    sleep_ms(60);
    switch (way) {
    case 0:
        if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) return;
        break;
    case 1: drop_capabilities(); break;
    case 2: OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); break;
    case 3: allow_all(0); break;
    case 4: allow_all(1); break;
    case 5:
        if (setresgid(-1, 65534, -1) || setresuid(-1, 65534, -1)) return;
        break;
    case 6:
        if (prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0)) return;
        break;
    case 7:
        if (syscall(SYS_setuid, 65534)) return;
        break;
    case 8: {
        /* The C library tells its own threads. */
        pthread_t t;
        OK(pthread_create(&t, NULL, idle, NULL));
        int failed = setregid(65534, 65534) || setreuid(65534, 65534);
        if (!failed) all_same();
        stop = 1;
        OK(pthread_join(t, NULL));
        if (failed) return;
        break;
    }
    default:
        if (setfsuid(65534) != 0) return;
        EQ(setfsuid(-1), 65534);
    }
    after();
}
static void namespaces(void) {
    work(1);
    sleep_ms(60);
    expect_exit(CHILD(), 0);
    int made = unshare(CLONE_NEWUSER);
    printf("user namespace: %d\n", made ? errno : 0);
    work(2);
    int fd = open("/proc/self/ns/mnt", O_RDONLY);
    CHECK(fd >= 0);
    if (!made) OK(unshare(CLONE_NEWNS)), OK(unshare(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM));
    printf("own mount namespace: %d\n", setns(fd, CLONE_NEWNS) ? errno : 0);
    fd = open("/proc/self/ns/user", O_RDONLY);
    CHECK(fd >= 0);
    printf("own user namespace: %d\n", setns(fd, CLONE_NEWUSER) ? errno : 0);
    fflush(stdout);
    expect_exit(CHILD({ work(3); }), 0);
    work(4);
}
int main(void) {
    tmpdir();
    fflush(stdout);
    OK(chmod(".", 0777));
    for (int way = 0; way < 10; way++) {
        pid_t pid = CHILD({ change(way); });
        int status;
        EQ(waitpid(pid, &status, 0), pid);
        if (status) die("way %d ended with status %#x", way, status);
    }
    expect_exit(CHILD({ namespaces(); }), 0);
    puts("ok");
    return 0;
}
