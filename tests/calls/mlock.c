/* mlock, mlock2, munlock, mlockall, munlockall. Small enough for the usual limit of an ordinary user. */
#include "common.h"

static void test(void) {
    char *p = fresh(64);
    fill(p, 64 * PAGE, 210), evict(p, 64 * PAGE);
    OK(CALL(mlock, p + 8 * PAGE, 8 * PAGE)), check(p, 64 * PAGE, 210);
    evict(p, 64 * PAGE), pressure(4), check(p, 64 * PAGE, 210);
    OK(CALL(mlock2, p + 16 * PAGE, 8 * PAGE, MLOCK_ONFAULT)), OK(CALL(mlock2, p + 24 * PAGE, PAGE, 0));
    /* Dropping locked content is refused. */
    expect_errno(madvise(p + 8 * PAGE, PAGE, MADV_DONTNEED), EINVAL);
    check(p, 64 * PAGE, 210);
    OK(CALL(munlock, p, 64 * PAGE)), OK(madvise(p + 8 * PAGE, PAGE, MADV_DONTNEED)), check_zero(p + 8 * PAGE, PAGE);
    fill(p, 64 * PAGE, 211), evict(p, 64 * PAGE), check(p, 64 * PAGE, 211);
    expect_errno(CALL(mlock2, p, PAGE, 64), EINVAL);
    expect_errno(CALL(mlock, bad_in()[1], PAGE), ENOMEM);
    expect_errno(CALL(munlock, bad_in()[1], PAGE), ENOMEM);
    expect_errno(CALL(mlockall, 0), EINVAL);
    expect_errno(CALL(mlockall, 64), EINVAL);
    /* Protected memory cannot be brought in. */
    OK(mprotect(p, PAGE, PROT_NONE));
    expect_errno(CALL(mlock, p, PAGE), ENOMEM);
    OK(munlock(p, PAGE)), OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE)), check(p, 64 * PAGE, 211);
    /* An ordinary user may not have room for everything; then nothing changes. */
    errno = 0;
    long all = CALL(mlockall, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
    CHECK(all == 0 || errno == ENOMEM || errno == EPERM);
    char *q = fresh(8);
    fill(q, 8 * PAGE, 212), evict_some(q, 8 * PAGE), check(q, 8 * PAGE, 212), check(p, 64 * PAGE, 211);
    OK(EITHER(munlockall(), syscall(SYS_munlockall))), evict(q, 8 * PAGE), check(q, 8 * PAGE, 212);
    /* Over the limit of a user who has one. */
    struct rlimit limit, small = {16 * PAGE, 0};
    OK(getrlimit(RLIMIT_MEMLOCK, &limit));
    small.rlim_max = limit.rlim_max;
    if (geteuid() && limit.rlim_max != RLIM_INFINITY) {
        OK(setrlimit(RLIMIT_MEMLOCK, &small));
        expect_errno(CALL(mlock, p, 64 * PAGE), ENOMEM);
        OK(setrlimit(RLIMIT_MEMLOCK, &limit));
    }
    check(p, 64 * PAGE, 211);
    munmap(p, 64 * PAGE), munmap(q, 8 * PAGE);
}
BOTH_WAYS(test)
