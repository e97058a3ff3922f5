/* mremap: in place, moved, shrunk, fixed, left behind, and its errors. */
#include "faults.h"

#define REMAP(p, n, m, flags, q) EITHER(mremap(p, n, m, flags, q), syscall(SYS_mremap, p, n, m, (long)(flags), q))

static void test(void) {
    catch_faults();
    char *p = fresh(64);
    OK(munmap(p + 16 * PAGE, 48 * PAGE));
    fill(p, 16 * PAGE, 180), evict(p, 16 * PAGE);
    char *q = (char *)REMAP(p, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE, NULL);
    CHECK(q != MAP_FAILED), check(q, 16 * PAGE, 180), check_zero(q + 16 * PAGE, 16 * PAGE);
    if (q != p) FAULTS_WITH(p, 0, SEGV_MAPERR);
    fill(q, 32 * PAGE, 181), evict(q, 32 * PAGE);
    EQ(REMAP(q, 32 * PAGE, 8 * PAGE, 0, NULL), (long)q);
    check(q, 8 * PAGE, 181);
    FAULTS_WITH(q + 8 * PAGE, 0, SEGV_MAPERR);
    FAULTS_WITH(q + 31 * PAGE, 0, SEGV_MAPERR);
    /* No room to grow. */
    char *tight = fresh(8);
    fill(tight, 8 * PAGE, 182), evict(tight, 8 * PAGE);
    expect_errno(REMAP(tight, 4 * PAGE, 8 * PAGE, 0, NULL), ENOMEM);
    char *moved = (char *)REMAP(tight, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE, NULL);
    CHECK(moved != MAP_FAILED && moved != tight);
    check(moved, 4 * PAGE, 182), check_zero(moved + 4 * PAGE, 60 * PAGE),
        check_from(tight + 4 * PAGE, 4 * PAGE, 182, 4 * PAGE);
    FAULTS_WITH(tight, 0, SEGV_MAPERR);
    /* Fixed over memory that has content. */
    fill(moved, 64 * PAGE, 183), fill(q, 8 * PAGE, 184), evict(moved, 64 * PAGE), evict(q, 8 * PAGE);
    EQ(REMAP(q, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved + 20 * PAGE), (long)(moved + 20 * PAGE));
    check(moved, 20 * PAGE, 183), check(moved + 20 * PAGE, 8 * PAGE, 184),
        check_from(moved + 28 * PAGE, 36 * PAGE, 183, 28 * PAGE);
    FAULTS_WITH(q, 0, SEGV_MAPERR);
    /* Fixed and smaller at the same time. */
    evict(moved, 64 * PAGE);
    EQ(REMAP(moved + 40 * PAGE, 16 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved), (long)moved);
    check_from(moved, 4 * PAGE, 183, 40 * PAGE), check_from(moved + 4 * PAGE, PAGE, 183, 4 * PAGE);
    FAULTS_WITH(moved + 40 * PAGE, 0, SEGV_MAPERR);
    FAULTS_WITH(moved + 55 * PAGE, 0, SEGV_MAPERR);
    /* Moved, with zeros left behind. */
    char *a = fresh(8);
    fill(a, 8 * PAGE, 185), evict(a, 8 * PAGE);
    char *b = (char *)REMAP(a, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(b != MAP_FAILED && b != a), check(b, 8 * PAGE, 185), check_zero(a, 8 * PAGE);
    fill(a, 8 * PAGE, 186), check(b, 8 * PAGE, 185);
    /* A protected page keeps its protection and content. */
    OK(mprotect(b + PAGE, PAGE, PROT_READ)), evict(b, 8 * PAGE);
    char *r = (char *)REMAP(b + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, a + PAGE);
    EQ((long)r, (long)(a + PAGE)), check_from(r, PAGE, 185, PAGE);
    FAULTS_WITH(r, 1, SEGV_ACCERR);
    check(a, PAGE, 186);

    expect_errno(REMAP(a + 1, PAGE, PAGE, MREMAP_MAYMOVE, NULL), EINVAL);
    expect_errno(REMAP(a, PAGE, 0L, MREMAP_MAYMOVE, NULL), EINVAL);
    expect_errno(REMAP(a, PAGE, PAGE, 64, NULL), EINVAL);
    expect_errno(REMAP(a, PAGE, PAGE, MREMAP_FIXED, b), EINVAL);
    expect_errno(REMAP(a, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, a + 2 * PAGE), EINVAL);
    expect_errno(REMAP(a, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EINVAL);
    expect_errno(REMAP(bad_in()[1], PAGE, 2 * PAGE, MREMAP_MAYMOVE, NULL), EFAULT);
    expect_errno(REMAP(a, PAGE, (1UL << 47) - (1UL << 40), MREMAP_MAYMOVE, NULL), ENOMEM);
    check(a, PAGE, 186);

    /* What is not managed is moved there as a whole, or stays where it is. */
    char *stack = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(stack != MAP_FAILED), fill(stack, 4 * PAGE, 189);
    OK(mprotect(a, 8 * PAGE, PROT_READ | PROT_WRITE)), fill(a, 8 * PAGE, 190), evict(a, 8 * PAGE);
    int is_moved = REMAP(stack, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, a + 2 * PAGE) == (long)(a + 2 * PAGE);
    if (is_moved) {
        check(a, 2 * PAGE, 190), check(a + 2 * PAGE, 4 * PAGE, 189), check_from(a + 6 * PAGE, 2 * PAGE, 190, 6 * PAGE);
        FAULTS_WITH(stack, 0, SEGV_MAPERR);
    } else {
        EQ(errno, EINVAL), check(a, 8 * PAGE, 190), check(stack, 4 * PAGE, 189);
        OK(munmap(stack, 4 * PAGE));
    }
    OK(munmap(a, 8 * PAGE));
    CHECK(mmap(a, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a);
    check_zero(a, 8 * PAGE), fill(a, 8 * PAGE, 191), evict(a, 8 * PAGE), check(a, 8 * PAGE, 191);

    /* realloc of large blocks is mremap in most allocators. */
    char *h = heap(1 << 20);
    fill(h, 1 << 20, 187), evict(h, 1 << 20);
    CHECK((h = realloc(h, 4 << 20))), check(h, 1 << 20, 187);
    fill(h, 4 << 20, 188), evict(h, 4 << 20);
    CHECK((h = realloc(h, 100000))), check(h, 100000, 188);
    free(h), munmap(a, 8 * PAGE), munmap(b, 8 * PAGE), munmap(moved, 64 * PAGE), munmap(tight, 8 * PAGE);
}
BOTH_WAYS(test)
