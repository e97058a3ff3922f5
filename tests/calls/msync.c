/* msync over managed, file and missing pages. */
#include "common.h"

static void test(void) {
    make_file("f", 4 * PAGE, 230);
    int fd = open("f", O_RDWR);
    char *p = fresh(12), c;
    fill(p, 12 * PAGE, 231), evict(p, 12 * PAGE);
    CHECK(mmap(p + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    p[4 * PAGE] = 'z';
    OK(CALL(msync, p, 12 * PAGE, MS_SYNC)), OK(CALL(msync, p, 12 * PAGE, MS_ASYNC)),
        OK(CALL(msync, p, 12 * PAGE, MS_INVALIDATE));
    EQ(pread(fd, &c, 1, 0), 1), EQ(c, 'z');
    check(p, 4 * PAGE, 231), check_from(p + 8 * PAGE, 4 * PAGE, 231, 8 * PAGE);
    expect_errno(CALL(msync, p, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    expect_errno(CALL(msync, p + 1, PAGE, MS_SYNC), EINVAL);
    expect_errno(CALL(msync, bad_in()[1], PAGE, MS_SYNC), ENOMEM);
    close(fd), munmap(p, 12 * PAGE);
}
BOTH_WAYS(test)
