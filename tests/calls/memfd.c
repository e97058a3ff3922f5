/* memfd_create, and shared and private mappings of it beside managed memory. */
#include "common.h"

static void test(void) {
    int fd = CALL(memfd_create, str("a name"), MFD_CLOEXEC);
    CHECK(fd >= 0);
    char *p = fresh(8);
    fill(p, 8 * PAGE, 80), evict(p, 8 * PAGE);
    EQ(write(fd, p, 8 * PAGE), 8 * PAGE);
    char *shared = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED);
    check(shared, 8 * PAGE, 80), check(private, 8 * PAGE, 80);
    fill(private, 4 * PAGE, 81), evict(private, 8 * PAGE), evict(shared, 8 * PAGE);
    check(shared, 8 * PAGE, 80), check(private, 4 * PAGE, 81);
    EFAULT_IN(b, CALL(memfd_create, b, 0));
    EFAULT_EDGE(b, CALL(memfd_create, b, 0));
    expect_errno(CALL(memfd_create, str("x"), 0x40), EINVAL);
    close(fd), munmap(p, 8 * PAGE), munmap(shared, 8 * PAGE), munmap(private, 8 * PAGE);
}
BOTH_WAYS(test)
