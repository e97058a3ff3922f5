/* epoll_ctl, epoll_wait, epoll_pwait, epoll_pwait2. */
#include "common.h"
#include <sys/epoll.h>

static long do_pwait(int fd, struct epoll_event *e, int n, int ms, const sigset_t *mask) {
    return EITHER(epoll_pwait(fd, e, n, ms, mask), syscall(SYS_epoll_pwait, fd, e, n, ms, mask, 8L));
}
static long do_pwait2(int fd, struct epoll_event *e, int n, const struct timespec *t, const sigset_t *mask) {
    return EITHER(epoll_pwait2(fd, e, n, t, mask), syscall(SYS_epoll_pwait2, fd, e, n, t, mask, 8L));
}
static volatile sig_atomic_t alarms;
static void on_alarm(int s) { (void)s, alarms++; }
static void *write_later(void *fd) {
    usleep(20000);
    write_all(*(int *)fd, "x", 1);
    return NULL;
}
static void test(void) {
    enum { FDS = 400, MAX = 500 };
    int ep = epoll_create1(0), fds[FDS][2];
    CHECK(ep >= 0);
    for (int i = 0; i < FDS; i++) {
        OK(pipe(fds[i]));
        OK(CALL(epoll_ctl, ep, EPOLL_CTL_ADD, fds[i][0], ARG(struct epoll_event, EPOLLIN, {.u64 = 1000 + i})));
    }
    struct epoll_event *e = place(MAX * sizeof *e, 4);
    EQ(CALL(epoll_wait, ep, e, MAX, 1), 0);
    EQ(do_pwait2(ep, e, MAX, ARG(struct timespec, 0, 1000000), NULL), 0);
    for (int i = 0; i < FDS; i++) EQ(write(fds[i][1], "x", 1), 1);
    for (int way = 0; way < 3; way++) {
        sigset_t empty;
        sigemptyset(&empty);
        evict(e, MAX * sizeof *e);
        EQ(way == 0   ? CALL(epoll_wait, ep, e, MAX, -1)
           : way == 1 ? do_pwait(ep, e, MAX, -1, arg(&empty, sizeof empty))
                      : do_pwait2(ep, e, MAX, ARG(struct timespec, 5, 0), arg(&empty, sizeof empty)),
           FDS);
        char seen[FDS] = {0};
        for (int i = 0; i < FDS; i++) {
            EQ(e[i].events, EPOLLIN);
            CHECK(e[i].data.u64 >= 1000 && e[i].data.u64 < 1000 + FDS);
            EQ(seen[e[i].data.u64 - 1000]++, 0);
        }
    }
    OK(CALL(epoll_ctl, ep, EPOLL_CTL_MOD, fds[0][0], ARG(struct epoll_event, EPOLLIN, {.u64 = 7})));
    EFAULT_IN(b, CALL(epoll_ctl, ep, EPOLL_CTL_MOD, fds[0][0], b));
    EFAULT_EDGE(b, CALL(epoll_ctl, ep, EPOLL_CTL_MOD, fds[0][0], b));
    OK(CALL(epoll_ctl, ep, EPOLL_CTL_DEL, fds[0][0], NULL));
    EFAULT_OUT(b, CALL(epoll_wait, ep, b, MAX, 0));
    EFAULT_OUT(b, do_pwait(ep, b, MAX, 0, NULL));
    EFAULT_OUT(b, do_pwait2(ep, b, MAX, ARG(struct timespec, 0, 0), NULL));
    EFAULT_IN(b, do_pwait(ep, e, MAX, 0, b));
    EFAULT_IN(b, do_pwait2(ep, e, MAX, b, NULL));
    evict(e, PAGE);
    expect_errno(CALL(epoll_wait, ep, e, 0, 0), EINVAL);
    expect_errno(CALL(epoll_wait, -1, e, 1, 0), EBADF);
    expect_errno(CALL(epoll_wait, fds[0][0], e, 1, 0), EINVAL);
    expect_errno(CALL(epoll_ctl, ep, EPOLL_CTL_ADD, fds[1][0], ARG(struct epoll_event, EPOLLIN, {.u64 = 1})), EEXIST);
    expect_errno(CALL(epoll_ctl, ep, EPOLL_CTL_DEL, fds[0][0], NULL), ENOENT);
    expect_errno(do_pwait2(ep, e, 1, ARG(struct timespec, 0, 2000000000), NULL), EINVAL);
    for (int i = 1; i < FDS; i++) {
        char c;
        EQ(read(fds[i][0], &c, 1), 1);
    }
    pthread_t t;
    OK(pthread_create(&t, NULL, write_later, &fds[5][1]));
    evict(e, MAX * sizeof *e);
    EQ(CALL(epoll_wait, ep, e, MAX, 5000), 1), EQ(e[0].data.u64, 1005);
    OK(pthread_join(t, NULL));
    char c;
    EQ(read(fds[5][0], &c, 1), 1);

    struct sigaction a = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &a, NULL);
    sigset_t block, empty;
    sigemptyset(&empty), sigemptyset(&block), sigaddset(&block, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &block, NULL));
    alarms = 0;
    raise(SIGALRM);
    expect_errno(do_pwait(ep, e, MAX, 5000, arg(&empty, sizeof empty)), EINTR), EQ(alarms, 1);
    raise(SIGALRM);
    expect_errno(do_pwait2(ep, e, MAX, ARG(struct timespec, 5, 0), arg(&empty, sizeof empty)), EINTR), EQ(alarms, 2);
    OK(sigprocmask(SIG_UNBLOCK, &block, NULL));
    for (int i = 0; i < FDS; i++) close(fds[i][0]), close(fds[i][1]);
    close(ep);
}
BOTH_WAYS(test)
