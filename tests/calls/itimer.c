/* setitimer and getitimer. */
#include "common.h"

static volatile sig_atomic_t fired;
static void on_alarm(int s) { (void)s, fired++; }
static void test(void) {
    struct sigaction a = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &a, NULL);
    fired = 0;
    struct itimerval *old = OUT(struct itimerval), *now = OLD(struct itimerval);
    OK(CALL(setitimer, ITIMER_REAL, ARG(struct itimerval, {0, 0}, {50, 0}), NULL));
    OK(CALL(getitimer, ITIMER_REAL, now)), CHECK(now->it_value.tv_sec >= 48 && now->it_value.tv_sec <= 50);
    OK(CALL(setitimer, ITIMER_REAL, ARG(struct itimerval, {0, 0}, {0, 1000}), old)),
        CHECK(old->it_value.tv_sec >= 48);
    while (!fired) usleep(500);
    EFAULT_IN(p, CALL(setitimer, ITIMER_REAL, p, NULL));
    EFAULT_EDGE(p, CALL(setitimer, ITIMER_REAL, p, NULL));
    EFAULT_OUT(p, CALL(getitimer, ITIMER_REAL, p));
    expect_errno(CALL(getitimer, 9, now), EINVAL);
    expect_errno(CALL(setitimer, ITIMER_REAL, ARG(struct itimerval, {0, 0}, {0, 1000000}), NULL), EINVAL);
}
BOTH_WAYS(test)
