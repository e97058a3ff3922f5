/* close_range over descriptors that are the program's and over all that there are, with each flag: what is left is usable, a child that
 * shares the table is not harmed, and memory comes in afterwards. */
#include "common.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif
static char *area;

static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }
static int is_cloexec(int fd) {
    int flags = fcntl(fd, F_GETFD);
    CHECK(flags >= 0);
    return flags & FD_CLOEXEC;
}
static long range(unsigned first, unsigned last, int flags) { return syscall(SYS_close_range, first, last, flags); }
/* Memory still comes and goes: nothing of what it needs was closed. */
static void goes_on(void) { evict(area, 64 * PAGE), check(area, 64 * PAGE, 1); }
static int some[8], base;
static void open_some(void) {
    for (int i = 0; i < 8; i++) CHECK((some[i] = dup2(base, 20 + 10 * i)) == 20 + 10 * i);
}
static int shared(void *arg) {
    int flags = *(int *)arg;
    _exit(range(20, ~0u, flags) ? 1 : is_open(20) && !(flags & CLOSE_RANGE_CLOEXEC) ? 2 : 6);
}
static char stack[64 << 10] __attribute__((aligned(16)));
static void *in_thread(void *arg) {
    OK(range(30, ~0u, CLOSE_RANGE_UNSHARE)), EQ(is_open(20), 1), EQ(is_open(30), 0), EQ(is_open(90), 0);
    goes_on();
    char *p = fresh(600);
    fill(p, 600 * PAGE, 3), evict(p, 600 * PAGE), check(p, 600 * PAGE, 3), OK(munmap(p, 600 * PAGE));
    return arg;
}
int main(void) {
    tmpdir();
    area = fresh(64), fill(area, 64 * PAGE, 1);
    CHECK((base = open("/dev/null", O_RDWR)) >= 0 && base < 20);
    expect_errno(range(10, 5, 0), EINVAL), expect_errno(range(10, 20, 1 << 7), EINVAL), expect_errno(range(3, ~0u, 64), EINVAL);
    expect_errno(range(~0u, 3, 0), EINVAL), expect_errno(range(10, 5, CLOSE_RANGE_UNSHARE), EINVAL);
    OK(range(200, 300, 0)), OK(range(~0u, ~0u, 0)), OK(range(1u << 31, ~0u, CLOSE_RANGE_CLOEXEC));
    /* Who goes through all numbers finds no descriptor that is not the program's. */
    struct stat status;
    for (int fd = 200; fd < sysconf(_SC_OPEN_MAX) && fd < 1 << 16; fd++) expect_errno(fstat(fd, &status), EBADF);
    open_some();
    OK(range(30, 59, 0)), EQ(is_open(20), 1), EQ(is_open(30), 0), EQ(is_open(50), 0), EQ(is_open(60), 1);
    open_some(), OK(range(40, ~0u, 0)), EQ(is_open(30), 1), EQ(is_open(40), 0), EQ(is_open(90), 0), goes_on();
    open_some(), OK(range(40, ~0u, CLOSE_RANGE_CLOEXEC)), EQ(is_cloexec(30), 0), EQ(is_cloexec(40), FD_CLOEXEC);
    EQ(is_cloexec(90), FD_CLOEXEC), goes_on();
    /* An executed program has what is below, and is managed as well. */
    expect_exit(CHILD({
        execl("/bin/sh", "sh", "-c", "test -e /proc/self/fd/30 && test ! -e /proc/self/fd/40 && test ! -e /proc/self/fd/90", NULL);
    }), 0);
    for (int i = 2; i < 8; i++) OK(close(some[i]));
    open_some();
    const int flags[] = {0, CLOSE_RANGE_UNSHARE, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC};
    for (int i = 0; i < 4; i++) {
        expect_exit(CHILD({
            OK(range(20, ~0u, flags[i])), EQ(is_open(20), (flags[i] & CLOSE_RANGE_CLOEXEC) != 0), goes_on();
            expect_exit(CHILD({ goes_on(); }), 0);
        }), 0);
        EQ(is_cloexec(20), 0), EQ(is_open(90), 1);
        /* A process with the same table. */
        static int how;
        how = flags[i];
        int unshared = how & CLOSE_RANGE_UNSHARE;
        pid_t pid = clone(shared, stack + sizeof stack, CLONE_FILES | CLONE_VM | CLONE_VFORK | SIGCHLD, &how);
        CHECK(pid >= 0), expect_exit(pid, 6);
        EQ(is_open(20), unshared || how & CLOSE_RANGE_CLOEXEC ? 1 : 0), goes_on();
        for (int k = 0; k < 8; k++) close(some[k]);
        open_some();
    }
    pthread_t t;
    OK(pthread_create(&t, NULL, in_thread, NULL)), OK(pthread_join(t, NULL));
    EQ(is_open(90), 1), goes_on(), pressure(40), goes_on();
    puts("ok");
    return 0;
}
