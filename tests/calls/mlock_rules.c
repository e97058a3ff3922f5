/* What mlock and its kin refuse, and what of a range they then have locked; mlockall in a small program. */
#include "common.h"

static int is_root;
/* Whether content that is dropped is refused, as that of locked memory is. */
static int locked(char *p) {
    if (madvise(p, PAGE, MADV_DONTNEED) == 0) return 0;
    EQ(errno, EINVAL);
    return 1;
}
static void test(void) {
    char *p = fresh(40), *far = (char *)0x7fffffff0000;
    fill(p, 40 * PAGE, 1), evict(p, 40 * PAGE);
    /* A hole: what lies before it is locked, what lies behind is not. */
    OK(munmap(p + 16 * PAGE, 4 * PAGE));
    expect_errno(CALL(mlock, p + 12 * PAGE, 12 * PAGE), ENOMEM);
    EQ(locked(p + 12 * PAGE), 1), EQ(locked(p + 15 * PAGE), 1), EQ(locked(p + 20 * PAGE), 0), EQ(locked(p + 11 * PAGE), 0);
    OK(CALL(mlock, p, 16 * PAGE)), OK(CALL(mlock, p + 20 * PAGE, 4 * PAGE));
    expect_errno(CALL(munlock, p + 12 * PAGE, 12 * PAGE), ENOMEM);
    EQ(locked(p + 11 * PAGE), 1), EQ(locked(p + 12 * PAGE), 0), EQ(locked(p + 20 * PAGE), 1);
    /* A range that begins in the hole. */
    OK(CALL(mlock, p, 16 * PAGE));
    expect_errno(CALL(munlock, p + 18 * PAGE, 4 * PAGE), ENOMEM), EQ(locked(p + 20 * PAGE), 1);
    expect_errno(CALL(mlock, p + 18 * PAGE, 8 * PAGE), ENOMEM), EQ(locked(p + 25 * PAGE), 0);
    expect_errno(CALL(mlock2, p + 18 * PAGE, 8 * PAGE, MLOCK_ONFAULT), ENOMEM), EQ(locked(p + 25 * PAGE), 0);
    OK(CALL(munlock, p, 16 * PAGE)), OK(CALL(munlock, p + 20 * PAGE, 20 * PAGE));
    /* Borders of pages, and nothing at all. */
    OK(CALL(mlock, p + 30 * PAGE + 5, 1)), EQ(locked(p + 30 * PAGE), 1), EQ(locked(p + 31 * PAGE), 0);
    OK(CALL(mlock, p + 31 * PAGE - 1, 2)), EQ(locked(p + 31 * PAGE), 1), EQ(locked(p + 32 * PAGE), 0);
    OK(CALL(munlock, p + 30 * PAGE + 100, PAGE)), EQ(locked(p + 31 * PAGE), 0), EQ(locked(p + 30 * PAGE), 0);
    OK(CALL(mlock, p + 16 * PAGE, 0)), OK(CALL(munlock, p + 16 * PAGE, 0)), OK(CALL(munlock, far, 0));
    expect_errno(CALL(munlock, p + 16 * PAGE + 1, 0), ENOMEM);
    expect_errno(CALL(mlock2, p + 16 * PAGE, 0, 2), EINVAL), expect_errno(CALL(mlock2, p + 16 * PAGE, PAGE, ~0u), EINVAL);
    /* Beyond what there is, and around the end of addresses. */
    expect_errno(CALL(munlock, far, PAGE), ENOMEM), expect_errno(CALL(munlock, (void *)-PAGE, PAGE), EINVAL);
    expect_errno(CALL(munlock, p + 24 * PAGE, -PAGE), EINVAL), expect_errno(CALL(munlock, (void *)PAGE, PAGE), ENOMEM);
    expect_errno(CALL(munlock, (void *)0xffff888000000000UL, PAGE), ENOMEM);
    if (is_root) expect_errno(CALL(mlock, p + 24 * PAGE, -(size_t)p), EINVAL), expect_errno(CALL(mlock, far, PAGE), ENOMEM);
    /* What is unlocked needs not be locked. */
    OK(CALL(munlock, p, 16 * PAGE)), OK(CALL(munlock, p + 20 * PAGE, 20 * PAGE));
    /* Without access it cannot be brought in, which is told; it is locked from then on. */
    OK(mprotect(p + 36 * PAGE, 2 * PAGE, PROT_NONE)), expect_errno(CALL(mlock, p + 35 * PAGE, 4 * PAGE), ENOMEM);
    EQ(locked(p + 35 * PAGE), 1), EQ(locked(p + 36 * PAGE), 1), EQ(locked(p + 38 * PAGE), 1);
    OK(CALL(munlock, p + 35 * PAGE, 4 * PAGE)), EQ(locked(p + 36 * PAGE), 0);
    /* Nobody's flags. */
    const int bad[] = {0, 8, 64, MCL_ONFAULT, MCL_ONFAULT | 8, MCL_CURRENT | 8, ~0};
    for (int i = 0; i < (int)(sizeof bad / sizeof *bad); i++) expect_errno(CALL(mlockall, bad[i]), EINVAL);
    check(p, 11 * PAGE, 1);
    /* Files, too, are unlocked with all that is. */
    make_file("locked", PAGE, 1);
    int fd = open("locked", O_RDONLY);
    char *file = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(file != MAP_FAILED), OK(mlock(file, PAGE)), EQ(locked(file), 1);
    OK(EITHER(munlockall(), syscall(SYS_munlockall))), EQ(locked(file), 0), OK(munmap(file, PAGE)), OK(close(fd));
    OK(EITHER(munlockall(), syscall(SYS_munlockall))), OK(EITHER(munlockall(), syscall(SYS_munlockall)));
    munmap(p, 40 * PAGE);
}
/* A program that has next to nothing. */
static void all_of_little(void) {
    char *kept = fresh(16);
    fill(kept, 16 * PAGE, 4), evict(kept, 16 * PAGE);
    const int flags[] = {MCL_CURRENT, MCL_FUTURE, MCL_CURRENT | MCL_ONFAULT, MCL_CURRENT | MCL_FUTURE, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT};
    for (int i = 0; i < (int)(sizeof flags / sizeof *flags); i++) {
        OK(mlockall(flags[i]));
        EQ(locked(kept + 3 * PAGE), (flags[i] & MCL_CURRENT) != 0);
        char *later = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(later != MAP_FAILED), EQ(locked(later), (flags[i] & MCL_FUTURE) != 0);
        OK(munlockall()), EQ(locked(kept + 3 * PAGE), 0), EQ(locked(later), 0), OK(munmap(later, 4 * PAGE));
        fill(kept, 16 * PAGE, 4), evict(kept, 16 * PAGE), check(kept, 16 * PAGE, 4);
    }
    /* Reservations without access do not count for nothing: they may not be brought in, which is no error here. */
    char *none = mmap(NULL, 64 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(none != MAP_FAILED);
    OK(mlockall(MCL_CURRENT)), OK(munlockall()), check(kept, 16 * PAGE, 4);
}
/* Who has no right to lock anything. */
static void none_allowed(void) {
    expect_exit(CHILD({
        struct rlimit zero = {0, 0};
        OK(setrlimit(RLIMIT_MEMLOCK, &zero));
        if (is_root) OK(setuid(65534));
        char *p = fresh(2);
        expect_errno(mlock(p, PAGE), EPERM), expect_errno(mlockall(MCL_CURRENT), EPERM), expect_errno(mlockall(MCL_FUTURE), EPERM);
        expect_errno(mlock2(p, PAGE, MLOCK_ONFAULT), EPERM), expect_errno(mlock(p, 0), EPERM);
        expect_errno(mlockall(64), EINVAL), OK(munlock(p, PAGE)), OK(munlockall());
        expect_errno(munlock(guarded(1) + PAGE, PAGE), ENOMEM);
        CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) == MAP_FAILED), EQ(errno, EPERM);
    }), 0);
    expect_exit(CHILD({
        struct rlimit little = {8 * PAGE, 8 * PAGE};
        OK(setrlimit(RLIMIT_MEMLOCK, &little));
        if (is_root) OK(setuid(65534));
        char *p = fresh(32);
        OK(mlock(p, 8 * PAGE)), expect_errno(mlock(p + 8 * PAGE, PAGE), ENOMEM), OK(mlock(p, 8 * PAGE));
        expect_errno(mlock(p, 9 * PAGE), ENOMEM), EQ(locked(p + 8 * PAGE), 0);
        OK(munlock(p, PAGE)), OK(mlock(p + 8 * PAGE, PAGE)), expect_errno(mlock(p, PAGE), ENOMEM);
        OK(munlockall()), expect_errno(mlockall(MCL_CURRENT), ENOMEM), OK(mlockall(MCL_FUTURE));
        CHECK(mmap(NULL, 9 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED), EQ(errno, EAGAIN);
    }), 0);
}
int main(void) {
    tmpdir();
    is_root = geteuid() == 0;
    for (raw_mode = 0; raw_mode < 2; raw_mode++) test();
    raw_mode = 0;
    all_of_little();
    none_allowed();
    puts("ok");
    return 0;
}
