/* getrandom. */
#include "common.h"
#include <sys/random.h>

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
    EFAULT_OUT(b, CALL(getrandom, b, 10, 0));
    expect_errno(CALL(getrandom, p, 10, 64), EINVAL);
    munmap(p, 300 * PAGE);
}
BOTH_WAYS(test)
