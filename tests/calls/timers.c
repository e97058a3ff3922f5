/* timer_create, timer_settime, timer_gettime, timerfd_settime, timerfd_gettime, and reading a timerfd. */
#include "common.h"
#include <sys/timerfd.h>

static volatile sig_atomic_t fired, value;
static void on_timer(int s, siginfo_t *i, void *c) { (void)s, (void)c, fired++, value = i->si_value.sival_int; }

static void test(void) {
    struct sigaction a = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, NULL);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
    fired = 0;
    if (raw_mode) {
        int *id = OUT(int);
        OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, arg(&e, sizeof e), id));
        struct itimerspec *old = OUT(struct itimerspec), *now = OLD(struct itimerspec);
        OK(syscall(SYS_timer_settime, *id, 0, ARG(struct itimerspec, {0, 0}, {50, 0}), old));
        OK(syscall(SYS_timer_gettime, *id, now)), CHECK(now->it_value.tv_sec >= 48 && now->it_value.tv_sec <= 50);
        EFAULT_OUT(p, syscall(SYS_timer_gettime, *id, p));
        EFAULT_IN(p, syscall(SYS_timer_settime, *id, 0, p, NULL));
        EFAULT_IN(p, syscall(SYS_timer_create, CLOCK_MONOTONIC, p, id));
        EFAULT_OUT(p, syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, p));
        OK(syscall(SYS_timer_settime, *id, 0, ARG(struct itimerspec, {0, 0}, {0, 1000000}), old));
        CHECK(old->it_value.tv_sec >= 48);
        while (!fired) usleep(500);
        OK(syscall(SYS_timer_delete, *id));
    } else {
        timer_t *id = OUT(timer_t);
        OK(timer_create(CLOCK_MONOTONIC, arg(&e, sizeof e), id));
        struct itimerspec *now = OLD(struct itimerspec);
        OK(timer_settime(*id, 0, ARG(struct itimerspec, {0, 0}, {50, 0}), OUT(struct itimerspec)));
        OK(timer_gettime(*id, now)), CHECK(now->it_value.tv_sec >= 48 && now->it_value.tv_sec <= 50);
        OK(timer_settime(*id, 0, ARG(struct itimerspec, {0, 0}, {0, 1000000}), NULL));
        while (!fired) usleep(500);
        OK(timer_delete(*id));
        expect_errno(timer_create(999, arg(&e, sizeof e), id), EINVAL);
    }
    EQ(value, 77);
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec *old = OLD(struct itimerspec), *now = OUT(struct itimerspec);
    OK(CALL(timerfd_settime, fd, 0, ARG(struct itimerspec, {0, 0}, {50, 0}), NULL));
    OK(CALL(timerfd_gettime, fd, now)), CHECK(now->it_value.tv_sec >= 48);
    OK(CALL(timerfd_settime, fd, 0, ARG(struct itimerspec, {0, 0}, {0, 1000}), old)),
        CHECK(old->it_value.tv_sec >= 48);
    uint64_t *count = OUT(uint64_t);
    EQ(CALL(read, fd, count, 8), 8), EQ(*count, 1);
    EFAULT_IN(p, CALL(timerfd_settime, fd, 0, p, NULL));
    EFAULT_OUT(p, CALL(timerfd_gettime, fd, p));
    EFAULT_EDGE(p, CALL(timerfd_settime, fd, 0, p, NULL));
    expect_errno(CALL(timerfd_gettime, -1, now), EBADF);
    expect_errno(CALL(timerfd_settime, fd, 0, ARG(struct itimerspec, {0, 0}, {0, -1}), NULL), EINVAL);
    expect_errno(CALL(timerfd_settime, 2, 0, ARG(struct itimerspec, {0, 0}, {0, 0}), NULL), EINVAL);
    close(fd);
}
BOTH_WAYS(test)
