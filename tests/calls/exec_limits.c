/* Limits that a process without rights lowers for good: programs that it executes have them, and an exec that fails leaves the
 * process as it was. */
#include "common.h"

static const int kinds[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE};
enum { KINDS = sizeof kinds / sizeof *kinds };
static const struct rlimit wanted[KINDS] = {
    {1UL << 31, 1UL << 31}, {512 * MIB, 768 * MIB}, {40, 50}};
static char self[PATH_MAX];

static void *nothing(void *arg) { return arg; }
static void limited(void) {
    for (int i = 0; i < KINDS; i++) {
        struct rlimit now, more = wanted[i];
        OK(getrlimit(kinds[i], &now));
        EQ(now.rlim_cur, wanted[i].rlim_cur), EQ(now.rlim_max, wanted[i].rlim_max);
        more.rlim_max++;
        expect_errno(setrlimit(kinds[i], &more), EPERM);
        more.rlim_cur = more.rlim_max + 1;
        expect_errno(setrlimit(kinds[i], &more), EINVAL);
        OK(setrlimit(kinds[i], &now));
    }
    CHECK(mmap(NULL, 1UL << 31, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED), EQ(errno, ENOMEM);
    CHECK(mmap(NULL, 512 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    EQ(errno, ENOMEM);
    int fd = -1, last;
    while ((last = open("/dev/null", O_RDONLY)) >= 0) fd = last;
    EQ(errno, EMFILE), EQ(fd, 39);
    for (int i = 3; i <= fd; i++) close(i);
}
static void lives(void) {
    limited();
    char *p = malloc(20 * MIB);
    CHECK(p);
    noise(p, 20 * MIB, 1), evict(p, 20 * MIB), check_noise(p, 20 * MIB, 1);
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    void *file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(file != MAP_FAILED), OK(munmap(file, PAGE)), close(fd);
    pthread_t t;
    OK(pthread_create(&t, NULL, nothing, NULL)), OK(pthread_join(t, NULL));
    expect_exit(CHILD({ check_noise(p, 20 * MIB, 1); limited(); }), 0);
    check_noise(p, 20 * MIB, 1), free(p);
}
static void text_file(const char *name, const char *text, int mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(fd >= 0);
    EQ(write(fd, text, strlen(text)), strlen(text)), OK(close(fd)), OK(chmod(name, mode));
}
static void failing_execs(void) {
    char *argv[] = {"x", NULL}, *envp[] = {"OUTSWAP_LIMITS=1", NULL};
    const struct { const char *name; int error; } fails[] = {{"missing", ENOENT}, {"no-interpreter", ENOENT},
        {"interpreter-loop", ELOOP}, {"not-executable", EACCES}, {".", EACCES}, {"text", ENOEXEC}, {"cut-elf", ENOEXEC}};
    static size_t i;
    for (i = 0; i < sizeof fails / sizeof *fails; i++) {
        expect_errno(execv(fails[i].name, argv), fails[i].error);
        expect_errno(syscall(SYS_execveat, AT_FDCWD, fails[i].name, argv, envp, 0), fails[i].error);
        pid_t pid = vfork();
        if (!pid) execv(fails[i].name, argv), _exit(errno);
        expect_exit(pid, fails[i].error);
    }
    lives();
}
int main(int argc, char **argv) {
    CHECK(realpath("/proc/self/exe", self));
    if (argc == 3) {
        lives();
        /* And so have those that it executes. */
        char *more[] = {self, argv[1], "x", "x", NULL}, *env[] = {NULL};
        expect_exit(CHILD(execve(self, more, env)), 7);
        pid_t pid = vfork();
        if (!pid) execve(self, more, env), _exit(1);
        expect_exit(pid, 7);
        exit(7);
    }
    if (argc == 4) {
        lives();
        exit(7);
    }
    tmpdir();
    OK(chmod(".", 0755));
    text_file("no-interpreter", "#!/nonexistent/interpreter\n", 0755);
    text_file("interpreter-loop", "#!interpreter-loop\n", 0755);
    text_file("not-executable", "#!/bin/sh\n", 0644);
    text_file("text", "nothing that is run\n", 0755);
    text_file("cut-elf", "\177ELF\2\1\1", 0755);
    text_file("script", "#!/bin/sh\nulimit -Hn; ulimit -Sn; ulimit -Hv; ulimit -Sv; ulimit -Hd; ulimit -Sd\n", 0755);
    expect_exit(CHILD({
        if (geteuid() == 0) OK(setgid(65534)), OK(setuid(65534));
        for (int i = 0; i < KINDS; i++) OK(setrlimit(kinds[i], &wanted[i]));
        lives(), failing_execs();
        FILE *f = popen("./script", "r");
        char line[100];
        const char *const shown[] = {"50\n", "40\n", "2097152\n", "2097152\n", "786432\n", "524288\n"};
        CHECK(f);
        for (int i = 0; i < 6; i++) CHECK(fgets(line, sizeof line, f) && !strcmp(line, shown[i]));
        OK(pclose(f));
        expect_exit(CHILD(execl(self, self, "run", "x", NULL)), 7);
        lives();
    }), 0);
    puts("ok");
    return 0;
}
