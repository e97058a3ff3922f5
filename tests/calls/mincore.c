/* mincore. Only what holds with and without a pager: a page just touched is in, one just dropped is not. */
#include "common.h"

static void test(void) {
    char *p = fresh(16);
    unsigned char *v = place(5000, 1);
    p[3 * PAGE] = 1;
    OK(CALL(mincore, p, 16 * PAGE, v)), EQ(v[3] & 1, 1);
    OK(madvise(p + 3 * PAGE, PAGE, MADV_DONTNEED)), evict(v, 16);
    OK(CALL(mincore, p, 16 * PAGE, v)), EQ(v[3] & 1, 0);
    p[15 * PAGE] = 1, v[16] = 99, evict(v, 17);
    OK(CALL(mincore, p + 15 * PAGE, 1L, v)), EQ(v[0] & 1, 1), EQ(v[16], 99);
    OK(CALL(mincore, p, 0L, v));
    expect_errno(CALL(mincore, p + 1, PAGE, v), EINVAL);
    expect_errno(CALL(mincore, bad_in()[1], PAGE, v), ENOMEM);
    char *g = guarded(2);
    expect_errno(CALL(mincore, g, 4 * PAGE, v), ENOMEM);
    EFAULT_OUT(b, CALL(mincore, p, PAGE, b));
    munmap(p, 16 * PAGE), munmap(g, 2 * PAGE);
}
BOTH_WAYS(test)
