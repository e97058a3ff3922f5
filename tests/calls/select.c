/* select and pselect6. */
#include "common.h"
#include <sys/select.h>

struct mask_arg {
    const sigset_t *set;
    size_t size;
};
static long do_pselect(int n, fd_set *r, fd_set *w, fd_set *e, struct timespec *t, const sigset_t *mask) {
    struct mask_arg m = {mask, 8};
    return EITHER(pselect(n, r, w, e, t, mask), syscall(SYS_pselect6, n, r, w, e, t, arg(&m, sizeof m)));
}
static volatile sig_atomic_t alarms;
static void on_alarm(int s) { (void)s, alarms++; }
static fd_set *one(int fd) {
    fd_set s;
    FD_ZERO(&s);
    FD_SET(fd, &s);
    return arg(&s, sizeof s);
}
static void test(void) {
    int pipes[2];
    OK(pipe(pipes));
    fd_set *r = one(pipes[0]), *w = one(pipes[1]), *e = one(pipes[0]);
    int n = pipes[1] + 1;
    EQ(CALL(select, n, r, NULL, NULL, ARG(struct timeval, 0, 1000)), 0);
    CHECK(!FD_ISSET(pipes[0], r));
    r = one(pipes[0]);
    EQ(CALL(select, n, r, w, e, NULL), 1);
    CHECK(!FD_ISSET(pipes[0], r) && FD_ISSET(pipes[1], w) && !FD_ISSET(pipes[0], e));
    EQ(write(pipes[1], "x", 1), 1);
    r = one(pipes[0]), w = one(pipes[1]), e = one(pipes[0]);
    EQ(CALL(select, n, r, w, e, ARG(struct timeval, 5, 0)), 2);
    CHECK(FD_ISSET(pipes[0], r) && FD_ISSET(pipes[1], w) && !FD_ISSET(pipes[0], e));
    r = one(pipes[0]), w = one(pipes[1]);
    sigset_t empty;
    sigemptyset(&empty);
    EQ(do_pselect(n, r, w, NULL, ARG(struct timespec, 5, 0), arg(&empty, sizeof empty)), 2);
    CHECK(FD_ISSET(pipes[0], r));

    /* A set is read and written only as far as its first n bits reach. */
    char *g = guarded(1);
    memset(g + PAGE - 8, 0, 8);
    g[PAGE - 8 + pipes[0] / 8] |= 1 << pipes[0] % 8;
    evict(g, PAGE);
    EQ(CALL(select, n, (fd_set *)(g + PAGE - 8), NULL, NULL, NULL), 1);

    r = one(pipes[0]);
    EFAULT_OUT(b, CALL(select, n, b, NULL, NULL, ARG(struct timeval, 0, 0)));
    EFAULT_OUT(b, CALL(select, n, NULL, b, NULL, ARG(struct timeval, 0, 0)));
    EFAULT_IN(b, syscall(SYS_select, n, r, NULL, NULL, b));
    EFAULT_IN(b, syscall(SYS_pselect6, n, r, NULL, NULL, b, NULL));
    EFAULT_IN(b, syscall(SYS_pselect6, n, r, NULL, NULL, NULL, b));
    r = one(60);
    expect_errno(CALL(select, 61, r, NULL, NULL, NULL), EBADF);
    expect_errno(CALL(select, -1, r, NULL, NULL, NULL), EINVAL);
    expect_errno(CALL(select, 0, NULL, NULL, NULL, ARG(struct timeval, -1, 0)), EINVAL);

    struct sigaction a = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &a, NULL);
    sigset_t block;
    sigemptyset(&block), sigaddset(&block, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &block, NULL));
    alarms = 0;
    raise(SIGALRM);
    char c;
    EQ(read(pipes[0], &c, 1), 1);
    expect_errno(do_pselect(n, one(pipes[0]), NULL, NULL, ARG(struct timespec, 5, 0), arg(&empty, sizeof empty)),
        EINTR);
    EQ(alarms, 1);
    OK(sigprocmask(SIG_UNBLOCK, &block, NULL));
    close(pipes[0]), close(pipes[1]);
}
BOTH_WAYS(test)
