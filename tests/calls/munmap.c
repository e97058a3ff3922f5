/* munmap: parts, holes, over everything that lies in the range, and its errors. */
#include "faults.h"

static void test(void) {
    catch_faults();
    char *p = fresh(32);
    fill(p, 32 * PAGE, 170), evict(p, 32 * PAGE);
    OK(CALL(munmap, p + 4 * PAGE, 4 * PAGE));
    FAULTS_WITH(p + 4 * PAGE, 0, SEGV_MAPERR);
    FAULTS_WITH(p + 8 * PAGE - 1, 1, SEGV_MAPERR);
    check(p, 4 * PAGE, 170), check_from(p + 8 * PAGE, 24 * PAGE, 170, 8 * PAGE);
    /* Again over the hole and on both sides of it. */
    evict(p, 4 * PAGE), evict(p + 8 * PAGE, 24 * PAGE);
    OK(CALL(munmap, p + 2 * PAGE, 8 * PAGE));
    check(p, 2 * PAGE, 170), check_from(p + 10 * PAGE, 22 * PAGE, 170, 10 * PAGE);
    FAULTS_WITH(p + 2 * PAGE, 0, SEGV_MAPERR);
    FAULTS_WITH(p + 9 * PAGE, 0, SEGV_MAPERR);
    /* Anonymous, file and shared pages in one range. */
    make_file("f", 4 * PAGE, 171);
    int fd = open("f", O_RDWR);
    CHECK(mmap(p + 12 * PAGE, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED);
    CHECK(mmap(p + 18 * PAGE, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    evict(p + 10 * PAGE, 22 * PAGE);
    OK(CALL(munmap, p + 11 * PAGE, 8 * PAGE));
    check_from(p + 10 * PAGE, PAGE, 170, 10 * PAGE), check_zero(p + 19 * PAGE, PAGE);
    check_from(p + 20 * PAGE, 12 * PAGE, 170, 20 * PAGE);
    FAULTS_WITH(p + 11 * PAGE, 0, SEGV_MAPERR);
    FAULTS_WITH(p + 18 * PAGE, 0, SEGV_MAPERR);
    /* The length is rounded up. */
    OK(CALL(munmap, p + 20 * PAGE, PAGE + 1));
    FAULTS_WITH(p + 22 * PAGE - 1, 0, SEGV_MAPERR);
    check_from(p + 22 * PAGE, 10 * PAGE, 170, 22 * PAGE);
    OK(CALL(munmap, p, 32 * PAGE)), OK(CALL(munmap, p, 32 * PAGE));
    expect_errno(CALL(munmap, p + 1, PAGE), EINVAL);
    expect_errno(CALL(munmap, p, 0L), EINVAL);
    expect_errno(CALL(munmap, (void *)(1UL << 47), PAGE), EINVAL);
    /* The same addresses are fresh when they come again. */
    for (int i = 0; i < 50; i++) {
        char *q = fresh(32);
        check_zero(q, 32 * PAGE);
        fill(q, 32 * PAGE, i), evict(q, 32 * PAGE), OK(CALL(munmap, q, 32 * PAGE));
    }
    close(fd);
}
BOTH_WAYS(test)
