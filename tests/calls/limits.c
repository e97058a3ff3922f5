/* getrusage, getrlimit, setrlimit, prlimit64. */
#include "common.h"

static void test(void) {
    for (int kind = 0; kind < 2; kind++) {
        struct rusage *u = kind ? OLD(struct rusage) : OUT(struct rusage);
        OK(CALL(getrusage, RUSAGE_SELF, u)), CHECK(u->ru_maxrss > 0 && u->ru_utime.tv_sec < 60);
        struct rlimit *l = kind ? OLD(struct rlimit) : OUT(struct rlimit), *m = OUT(struct rlimit);
        OK(CALL(getrlimit, RLIMIT_CORE, l));
        OK(CALL(setrlimit, RLIMIT_CORE, ARG(struct rlimit, 0, l->rlim_max)));
        OK(EITHER(prlimit(0, RLIMIT_CORE, NULL, m), syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, m)));
        EQ(m->rlim_cur, 0), EQ(m->rlim_max, l->rlim_max);
        struct rlimit *was = kind ? OLD(struct rlimit) : OUT(struct rlimit);
        OK(EITHER(prlimit(getpid(), RLIMIT_CORE, ARG(struct rlimit, 0, m->rlim_max), was),
                  syscall(SYS_prlimit64, getpid(), RLIMIT_CORE, ARG(struct rlimit, 0, m->rlim_max), was)));
        EQ(was->rlim_cur, 0);
    }
    EFAULT_OUT(p, CALL(getrusage, RUSAGE_SELF, p));
    EFAULT_EDGE(p, CALL(getrusage, RUSAGE_SELF, p));
    EFAULT_OUT(p, CALL(getrlimit, RLIMIT_CORE, p));
    EFAULT_IN(p, CALL(setrlimit, RLIMIT_CORE, p));
    EFAULT_EDGE(p, CALL(setrlimit, RLIMIT_CORE, p));
    EFAULT_OUT(p, syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, p));
    EFAULT_IN(p, syscall(SYS_prlimit64, 0, RLIMIT_CORE, p, NULL));
    expect_errno(CALL(getrlimit, 99, OUT(struct rlimit)), EINVAL);
    expect_errno(CALL(getrusage, 99, OUT(struct rusage)), EINVAL);
    expect_errno(CALL(setrlimit, RLIMIT_CORE, ARG(struct rlimit, 2, 1)), EINVAL);
}
BOTH_WAYS(test)
