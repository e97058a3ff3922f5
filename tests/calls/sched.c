/* sched_getaffinity, sched_setaffinity, sched_getparam, sched_setparam, sched_rr_get_interval. */
#include "common.h"

static void test(void) {
    for (int kind = 0; kind < 2; kind++) {
        cpu_set_t *s = kind ? OLD(cpu_set_t) : OUT(cpu_set_t);
        CHECK(CALL(sched_getaffinity, 0, sizeof *s, s) >= 0), CHECK(CPU_COUNT(s) > 0);
        evict(s, sizeof *s);
        OK(CALL(sched_setaffinity, 0, sizeof *s, s));
        struct sched_param *p = kind ? OLD(struct sched_param) : OUT(struct sched_param);
        OK(CALL(sched_getparam, 0, p)), EQ(p->sched_priority, 0);
        evict(p, sizeof *p);
        OK(CALL(sched_setparam, 0, p)), OK(CALL(sched_setscheduler, 0, SCHED_OTHER, p));
        OK(CALL(sched_rr_get_interval, 0, OUT(struct timespec)));
    }
    /* Attributes as they are, in a structure that says that it is longer than the kernel's: zeros in the next page. */
    char *attributes = fresh(2) + PAGE - 64;
    memset(attributes, 0, 128), *(unsigned *)attributes = 128;
    evict(attributes, 128), OK(syscall(SYS_sched_setattr, 0, attributes, 0));
    cpu_set_t *s = OUT(cpu_set_t);
    EFAULT_OUT(p, CALL(sched_getaffinity, 0, sizeof *s, p));
    EFAULT_IN(p, CALL(sched_setaffinity, 0, sizeof *s, p));
    EFAULT_OUT(p, CALL(sched_getparam, 0, p));
    EFAULT_IN(p, CALL(sched_setparam, 0, p));
    expect_errno(CALL(sched_setaffinity, 0, sizeof *s, s), EINVAL);
    expect_errno(CALL(sched_getaffinity, 0, 1, s), EINVAL);
    expect_errno(CALL(sched_getaffinity, 0x3fffffff, sizeof *s, s), ESRCH);
}
BOTH_WAYS(test)
