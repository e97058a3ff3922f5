/* nanosleep and clock_nanosleep. */
#include "common.h"

static long do_clock(int flags, struct timespec *t, struct timespec *left) {
    if (raw_mode) return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, flags, t, left);
    errno = clock_nanosleep(CLOCK_MONOTONIC, flags, t, left);
    return errno ? -1 : 0;
}
static void on_alarm(int s) { (void)s; }
/* Again and again: the first may come before the sleep. */
static void alarm_soon(void) {
    struct itimerval soon = {{0, 20000}, {0, 20000}};
    OK(setitimer(ITIMER_REAL, &soon, NULL));
}
static void test(void) {
    int64_t start = now_ns();
    OK(CALL(nanosleep, ARG(struct timespec, 0, 5000000), OUT(struct timespec)));
    OK(do_clock(0, ARG(struct timespec, 0, 5000000), NULL));
    CHECK(now_ns() - start >= 10000000);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 5000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    OK(do_clock(TIMER_ABSTIME, arg(&until, sizeof until), NULL));
    EFAULT_IN(p, CALL(nanosleep, p, NULL));
    EFAULT_EDGE(p, CALL(nanosleep, p, NULL));
    EFAULT_IN(p, do_clock(0, p, NULL));
    expect_errno(CALL(nanosleep, ARG(struct timespec, 0, 1000000000), NULL), EINVAL);
    expect_errno(do_clock(0, ARG(struct timespec, -1, 0), NULL), EINVAL);
    struct sigaction a = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &a, NULL);
    struct timespec *left = OUT(struct timespec);
    alarm_soon();
    expect_errno(CALL(nanosleep, ARG(struct timespec, 100, 0), left), EINTR),
        CHECK(left->tv_sec >= 90 && left->tv_sec < 100);
    left = OLD(struct timespec);
    alarm_soon();
    expect_errno(do_clock(0, ARG(struct timespec, 100, 0), left), EINTR),
        CHECK(left->tv_sec >= 90 && left->tv_sec < 100);
    for (void **b = bad_out(); *b; b++) {
        alarm_soon();
        expect_errno(CALL(nanosleep, ARG(struct timespec, 100, 0), *b), EFAULT);
    }
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
}
BOTH_WAYS(test)
