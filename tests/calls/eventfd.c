/* Reading and writing an eventfd. */
#include "common.h"
#include <sys/eventfd.h>

static void test(void) {
    int fd = eventfd(3, EFD_NONBLOCK);
    uint64_t *n = OUT(uint64_t);
    EQ(CALL(read, fd, n, 8), 8), EQ(*n, 3);
    expect_errno(CALL(read, fd, n, 8), EAGAIN);
    EQ(CALL(write, fd, ARG(uint64_t, 39), 8), 8);
    n = OLD(uint64_t);
    EQ(CALL(read, fd, n, 8), 8), EQ(*n, 39);
    eventfd_t *e = OUT(eventfd_t);
    OK(eventfd_write(fd, 5)), OK(eventfd_read(fd, e)), EQ(*e, 5);
    EFAULT_IN(p, CALL(write, fd, p, 8));
    EFAULT_EDGE(p, CALL(write, fd, p, 8));
    expect_errno(CALL(write, fd, ARG(uint64_t, -1), 8), EINVAL);
    expect_errno(CALL(read, fd, n, 4), EINVAL);
    close(fd);
}
BOTH_WAYS(test)
