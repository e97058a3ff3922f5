/* pipe, pipe2, and bytes through them from evicted memory. */
#include "common.h"

static void test(void) {
    int *fds = place(8, 4);
    OK(CALL(pipe, fds));
    char *p = fresh(8), *q = fresh(8);
    fill(p, 8 * PAGE, 60), evict(p, 8 * PAGE);
    EQ(write(fds[1], p + 1, 7 * PAGE), 7 * PAGE), EQ(read(fds[0], q + 3, 7 * PAGE), 7 * PAGE);
    check_from(q + 3, 7 * PAGE, 60, 1);
    close(fds[0]), close(fds[1]);
    evict(fds, 8);
    OK(CALL(pipe2, fds, O_CLOEXEC | O_NONBLOCK));
    EQ(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    int next = fds[1] + 1;
    close(fds[0]), close(fds[1]);
    EFAULT_OUT(b, CALL(pipe, b));
    EFAULT_OUT(b, CALL(pipe2, b, 0));
    EFAULT_EDGE(b, CALL(pipe, b));
    expect_errno(CALL(pipe2, fds, 1), EINVAL);
    /* Nothing leaks from the failures. */
    OK(pipe(fds)), EQ(fds[1] + 1, next), close(fds[0]), close(fds[1]);
    munmap(p, 8 * PAGE), munmap(q, 8 * PAGE);
}
BOTH_WAYS(test)
