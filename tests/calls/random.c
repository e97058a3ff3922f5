/* getrandom; more of it than a small budget holds comes whole, in one call. */
#include "common.h"
#include <sys/random.h>

/* That is random all over: in each page about half of the bits are set. */
static void check_random(const unsigned char *p, size_t n) {
    for (size_t at = 0; at + PAGE <= n; at += PAGE) {
        size_t ones = 0;
        for (size_t i = 0; i < PAGE; i++) ones += __builtin_popcount(p[at + i]);
        CHECK(ones > PAGE * 7 / 2 && ones < PAGE * 9 / 2);
    }
}
/* By a call in any case: from the C library 2.41 on it writes by itself, and crashes where that cannot be. */
static long asked(void *to, size_t n) { return libc_before(41) ? CALL(getrandom, to, n, 0) : syscall(SYS_getrandom, to, n, 0); }
static void many(void) {
    size_t pages = 48 * MIB / PAGE;
    unsigned char *p = (unsigned char *)fresh(pages + 1);
    EQ(CALL(getrandom, p, 4 * MIB, 0), 4 * MIB), check_random(p, 4 * MIB);
    fill(p, pages * PAGE, 2), evict(p, pages * PAGE);
    EQ(CALL(getrandom, p + 5, pages * PAGE - 10, GRND_NONBLOCK), pages * PAGE - 10);
    check_random(p + 5, pages * PAGE - 10), check(p, 5, 2), check_from(p + pages * PAGE - 5, 5, 2, pages * PAGE - 5);
    expect_errno(CALL(getrandom, p, pages * PAGE, 64), EINVAL);
    /* What cannot be written ends it. */
    OK(mprotect(p + 3 * MIB, PAGE, PROT_READ));
    EQ(asked(p, 4 * MIB), 3 * MIB);
    OK(munmap(p, (pages + 1) * PAGE));
}
static void test(void) {
    unsigned char *p = (unsigned char *)fresh(300);
    EQ(CALL(getrandom, p + 7, 200, 0), 200);
    EQ(CALL(getrandom, p + PAGE + 7, 256 * PAGE, 0), 256 * PAGE);
    size_t ones = 0;
    for (size_t i = 0; i < 256 * PAGE; i++) ones += __builtin_popcount(p[PAGE + 7 + i]);
    CHECK(ones > 128 * PAGE * 7 && ones < 128 * PAGE * 9);
    fill(p, 4 * PAGE, 1), evict(p, 4 * PAGE);
    EQ(CALL(getrandom, p + PAGE - 8, 16, 0), 16), check(p, PAGE - 8, 1), check_from(p + PAGE + 8, PAGE, 1, PAGE + 8);
    OK(getentropy(p, 256));
    EFAULT_OUT(b, asked(b, 10));
    expect_errno(CALL(getrandom, p, 10, 64), EINVAL);
    munmap(p, 300 * PAGE);
    many();
}
BOTH_WAYS(test)
