/* What a child that shares the memory may: it has its parent's limits, and can change its own; it can lock itself in by a filter; and it
 * is made also where children are in another namespace of process ids, if the parent may make one. A filter that the kernel does not take
 * changes nothing. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;
static char *area;
enum { AREA = 44 << 20 };

static void limits(void) {
    struct rlimit asked = {100, 200}, space = {1L << 40, 1L << 41}, found;
    OK(getrlimit(RLIMIT_DATA, &found));
    found.rlim_cur = 1L << 39;
    OK(setrlimit(RLIMIT_DATA, &found));
    OK(setrlimit(RLIMIT_NOFILE, &asked)), OK(setrlimit(RLIMIT_AS, &space));
    pid_t child = vfork();
    if (child == 0) {
        if (getrlimit(RLIMIT_NOFILE, &found) || found.rlim_cur != 100 || found.rlim_max != 200) _exit(1);
        /* What it has, set again, is no change. */
        if (setrlimit(RLIMIT_NOFILE, &found)) _exit(2);
        if (getrlimit(RLIMIT_AS, &found) || found.rlim_cur != 1UL << 40 || found.rlim_max != 1UL << 41) _exit(3);
        if (prlimit(0, RLIMIT_AS, &found, &found) || found.rlim_cur != 1UL << 40) _exit(4);
        execl("/bin/sh", "sh", "-c", "test \"$(ulimit -n) $(ulimit -Hn) $(ulimit -v) $(ulimit -Hv)\" = \"100 200 1073741824 2147483648\"", NULL);
        _exit(5);
    }
    expect_exit(child, 0);
    child = vfork();
    if (child == 0) {
        found.rlim_cur = found.rlim_max = 50;
        if (setrlimit(RLIMIT_NOFILE, &found) || getrlimit(RLIMIT_NOFILE, &found) || found.rlim_max != 50) _exit(1);
        found.rlim_cur = 51;
        if (setrlimit(RLIMIT_NOFILE, &found) != -1 || errno != EINVAL) _exit(2);
        execl("/bin/sh", "sh", "-c", "test $(ulimit -n) = 50", NULL);
        _exit(5);
    }
    expect_exit(child, 0);
    child = vfork();
    if (child == 0) {
        /* As much as it may have, which is what the kernel may have anyway. */
        if (getrlimit(RLIMIT_DATA, &found)) _exit(1);
        found.rlim_cur = found.rlim_max;
        if (setrlimit(RLIMIT_DATA, &found) || getrlimit(RLIMIT_DATA, &found) || found.rlim_cur != found.rlim_max) _exit(2);
        execl("/bin/sh", "sh", "-c", "test $(ulimit -Sd) = $(ulimit -Hd)", NULL);
        _exit(5);
    }
    expect_exit(child, 0);
    /* They were the child's own. */
    OK(getrlimit(RLIMIT_NOFILE, &found)), EQ(found.rlim_max, 200);
}

#define LET(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static struct sock_filter few[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), LET(write), LET(exit_group), LET(rt_sigreturn), LET(rt_sigprocmask),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static void filters(void) {
    struct sock_fprog program = {sizeof few / sizeof *few, few};
    int null = open("/dev/null", O_WRONLY);
    CHECK(null >= 0);
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    for (int i = 0; i < 3; i++) {
        char *at = area + (i << 20);
        evict_some(at, PAGE);
        pid_t child = vfork();
        if (child == 0) {
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(3);
            _exit(write(null, at, PAGE) == PAGE ? 0 : 4);
        }
        expect_exit(child, 0);
    }
    /* Of an unknown kind: it would let nothing be opened. */
    struct sock_filter none[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};
    struct sock_fprog refused = {1, none};
    EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1U << 30, &refused), -1), EQ(errno, EINVAL);
    expect_exit(CHILD(check_noise(area, AREA, 1)), 0);
    close(null);
}

static int closed;
static int closes(void *unused) {
    (void)unused;
    for (int fd = 0; fd < 1024; fd++) close(fd);
    _exit(0);
}
static void namespaces(void) {
    if (unshare(CLONE_NEWPID)) return;
    CHECK((closed = open("/dev/null", O_RDONLY)) >= 0);
    char *words[] = {"/bin/sh", "-c", "exit 7", NULL};
    pid_t child;
    OK(posix_spawn(&child, words[0], NULL, NULL, words, environ)), expect_exit(child, 7);
    /* What it closes its parent has not either; or there is none. */
    char *stack = fresh(16);
    child = clone(closes, stack + 16 * PAGE, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, NULL);
    if (child > 0) expect_exit(child, 0), EQ(fcntl(closed, F_GETFD), -1);
    else CHECK(errno == EAGAIN || errno == ENOMEM);
    evict_some(area, AREA), check_noise(area, AREA, 1);
    child = vfork();
    if (child == 0) _exit(getpid() == 1 ? 0 : 1);
    /* The first is gone, and with it the namespace: no other process can be made there. */
    if (child > 0) expect_exit(child, 0);
    else EQ(errno, ENOMEM);
}

int main(void) {
    area = fresh(AREA / PAGE);
    noise(area, AREA, 1);
    limits();
    filters();
    check_noise(area, AREA, 1);
    expect_exit(CHILD(namespaces()), 0);
    check_noise(area, AREA, 1);
    puts("ok");
    return 0;
}
