/* Flags that are ints to the kernel, with anything at all above them in their registers, on evicted memory: the answers, and what becomes of the
 * memory, are those of the flags alone. */
#include "common.h"
#include "own_call.h"

enum { PAGES = 64, SIZE = PAGES * 4096 };
/* Also the sign of a long, and of an int that was extended wrongly. */
static const uint64_t above[] = {0, 1UL << 32, 0xdead123400000000, 0x8000000000000000, 0xffffffff00000000};
static char *area;

/* By the C library, and by an instruction that it knows nothing of; gives what the kernel does. */
static long call(long n, long a, long b, long c, long d) {
    if (raw_mode) return call6(n, a, b, c, d, 0, 0);
    long got = syscall(n, a, b, c, d);
    return got < 0 ? -errno : got;
}
static void put_out(void) {
    fill(area, SIZE, 1), evict(area, SIZE);
}
/* How much of it is zeros, and that the rest is as it was. */
static int dropped(void) {
    int zeros = 0;
    for (size_t i = 0; i < PAGES; i++) {
        uint64_t first = *(Look *)(area + i * PAGE + 8);
        if (first) check_from(area + i * PAGE, PAGE, 1, i * PAGE);
        else check_zero(area + i * PAGE, PAGE), zeros++;
    }
    return zeros;
}
/* Locked memory does not let itself be dropped. */
static int is_locked(char *p) {
    long got = call(SYS_madvise, (long)p, PAGE, MADV_DONTNEED, 0);
    CHECK(got == 0 || got == -EINVAL);
    return got != 0;
}
static void advises(uint64_t high) {
    static const int advices[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK,
        MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTDUMP, MADV_DODUMP, 20, 21, 9999, -1, 1 << 30};
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        put_out();
        int is_known = advices[i] >= 0 && advices[i] < 9999;
        EQ(call(SYS_madvise, (long)area, SIZE / 2, high | (uint32_t)advices[i], 0), is_known ? 0 : -EINVAL);
        EQ(dropped(), advices[i] == MADV_DONTNEED ? PAGES / 2 : 0);
    }
}
/* What a child has says whether advice on forks was taken as it was given. */
static void wipes(uint64_t high) {
    put_out();
    OK(call(SYS_madvise, (long)area, SIZE / 4, high | MADV_WIPEONFORK, 0));
    expect_exit(CHILD({ _exit(dropped()); }), PAGES / 4);
    OK(call(SYS_madvise, (long)area, SIZE / 4, high | MADV_KEEPONFORK, 0));
    expect_exit(CHILD({ _exit(dropped()); }), 0);
}
static void syncs(uint64_t high) {
    static const int answers[8] = {0, 0, 0, 0, 0, -EINVAL, 0, -EINVAL};
    put_out();
    for (uint64_t flags = 0; flags < 8; flags++) EQ(call(SYS_msync, (long)area, SIZE, high | flags, 0), answers[flags]);
    EQ(call(SYS_msync, (long)area, SIZE, high | 8, 0), -EINVAL), EQ(call(SYS_msync, (long)area, SIZE, high | 1U << 31, 0), -EINVAL);
    OK(mlock(area, PAGE));
    EQ(call(SYS_msync, (long)area, SIZE, high | MS_INVALIDATE, 0), -EBUSY);
    OK(munlock(area, PAGE));
    EQ(dropped(), 0);
}
static void locks(uint64_t high) {
    for (uint64_t flags = 0; flags < 2; flags++) {
        put_out();
        OK(call(SYS_mlock2, (long)area, SIZE / 4, high | flags, 0));
        EQ(is_locked(area), 1), EQ(is_locked(area + SIZE / 4 - PAGE), 1);
        EQ(dropped(), 0);
        OK(munlock(area, SIZE)), EQ(is_locked(area), 0);
        EQ(dropped(), 1);
    }
    static const uint32_t bad[] = {2, 3, 1U << 31, ~0U}, bad_all[] = {0, 8, 9, MCL_ONFAULT, 64, 1U << 31, ~0U};
    for (int i = 0; i < 4; i++) EQ(call(SYS_mlock2, (long)area, SIZE, high | bad[i], 0), -EINVAL);
    for (int i = 0; i < 7; i++) EQ(call(SYS_mlockall, high | bad_all[i], 0, 0, 0), -EINVAL);
    put_out();
    /* More than everybody may lock. */
    long clean = call(SYS_mlockall, MCL_CURRENT | MCL_ONFAULT, 0, 0, 0);
    CHECK(clean == 0 || (clean == -ENOMEM && geteuid())), OK(munlockall());
    EQ(call(SYS_mlockall, high | MCL_CURRENT | MCL_ONFAULT, 0, 0, 0), clean);
    EQ(is_locked(area), !clean), EQ(is_locked(area + SIZE - PAGE), !clean);
    OK(munlockall()), EQ(is_locked(area + PAGE), 0);
    /* What is mapped from then on. */
    OK(call(SYS_mlockall, high | MCL_FUTURE, 0, 0, 0));
    char *later = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(later != MAP_FAILED);
    EQ(is_locked(later), 1), EQ(is_locked(area), 0);
    OK(munlockall()), OK(munmap(later, 4 * PAGE));
}
static void masks(uint64_t high) {
    static const int signals[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGSYS};
    uint64_t all = 0, none = 0, before, now;
    for (int i = 0; i < 4; i++) all |= 1UL << (signals[i] - 1);
    uint64_t one = 1UL << (SIGSEGV - 1), *set = arg(&all, 8), *old = OLD(uint64_t);
    OK(call(SYS_rt_sigprocmask, high | SIG_BLOCK, (long)set, (long)old, 8)), EQ(*old & all, 0);
    OK(call(SYS_rt_sigprocmask, high | SIG_UNBLOCK, (long)arg(&one, 8), (long)&before, 8)), EQ(before & all, all);
    /* Whatever is blocked, what is out comes in. */
    put_out(), EQ(dropped(), 0);
    for (uint32_t how = 3; how; how = how == 3 ? 1U << 31 : how == 1U << 31 ? ~0U : 0) {
        EQ(call(SYS_rt_sigprocmask, high | how, (long)set, (long)old, 8), -EINVAL);
        /* With no set, nobody looks at how. */
        OK(call(SYS_rt_sigprocmask, high | how, 0, (long)&now, 8)), EQ(now & all, all & ~one);
    }
    OK(call(SYS_rt_sigprocmask, high | SIG_SETMASK, (long)arg(&one, 8), 0, 8));
    OK(call(SYS_rt_sigprocmask, high | SIG_SETMASK, (long)arg(&none, 8), (long)old, 8)), EQ(*old & all, one);
}
static void test(void) {
    for (size_t i = 0; i < sizeof above / sizeof *above; i++) {
        area = fresh(PAGES);
        advises(above[i]), wipes(above[i]), syncs(above[i]), locks(above[i]), masks(above[i]);
        OK(munmap(area, SIZE));
    }
}
BOTH_WAYS(test)
