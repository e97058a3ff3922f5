/* clock_gettime, clock_getres, gettimeofday, times, time, getcpu: some of them never enter the kernel. */
#include "common.h"
#include <sys/times.h>
#include <sys/timex.h>

static void test(void) {
    for (int kind = 0; kind < 2; kind++) {
        struct timespec *t = kind ? OLD(struct timespec) : OUT(struct timespec), now;
        OK(clock_gettime(CLOCK_REALTIME, &now));
        OK(CALL(clock_gettime, CLOCK_REALTIME, t)), CHECK(t->tv_sec >= now.tv_sec && t->tv_sec < now.tv_sec + 60);
        t = kind ? OLD(struct timespec) : OUT(struct timespec);
        OK(CALL(clock_gettime, CLOCK_PROCESS_CPUTIME_ID, t)), CHECK(t->tv_sec < 60);
        t = kind ? OLD(struct timespec) : OUT(struct timespec);
        OK(CALL(clock_getres, CLOCK_MONOTONIC, t)), EQ(t->tv_sec, 0);
        struct timeval *v = kind ? OLD(struct timeval) : OUT(struct timeval);
        OK(CALL(gettimeofday, v, NULL)), CHECK(v->tv_sec >= now.tv_sec && v->tv_sec < now.tv_sec + 60);
        struct tms *tms = kind ? OLD(struct tms) : OUT(struct tms);
        CHECK(CALL(times, tms) != -1), CHECK(tms->tms_utime < 6000);
        time_t *seconds = kind ? OLD(time_t) : OUT(time_t);
        /* Of the last tick, so a little behind the clock that was read above. */
        EQ(CALL(time, seconds), *seconds), CHECK(*seconds >= now.tv_sec - 1);
        unsigned *cpu = kind ? OLD(unsigned) : OUT(unsigned), *node = OUT(unsigned);
        OK(EITHER(getcpu(cpu, node), syscall(SYS_getcpu, cpu, node, NULL))), CHECK(*cpu < 4096);
        struct timex *x = OUT(struct timex);
        CHECK(CALL(adjtimex, x) >= 0);
    }
    EFAULT_OUT(p, syscall(SYS_clock_gettime, CLOCK_REALTIME, p));
    EFAULT_EDGE(p, syscall(SYS_clock_gettime, CLOCK_REALTIME, p));
    EFAULT_OUT(p, syscall(SYS_clock_getres, CLOCK_REALTIME, p));
    EFAULT_OUT(p, syscall(SYS_gettimeofday, p, NULL));
    EFAULT_OUT(p, syscall(SYS_times, p));
    EFAULT_OUT(p, syscall(SYS_getcpu, p, NULL, NULL));
    EFAULT_OUT(p, syscall(SYS_adjtimex, p));
    expect_errno(CALL(clock_gettime, 999, OUT(struct timespec)), EINVAL);
    expect_errno(CALL(clock_getres, 999, OUT(struct timespec)), EINVAL);
}
BOTH_WAYS(test)
