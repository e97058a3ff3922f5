/* pread64 and pwrite64. */
#include "common.h"

static void test(void) {
    char *p = fresh(40), *q = fresh(40);
    fill(p, 40 * PAGE, 20);
    evict(p, 40 * PAGE);
    int fd = open("file", O_CREAT | O_TRUNC | O_RDWR, 0644);
    EQ(CALL(pwrite64, fd, p + 3, 30 * PAGE, 1000), 30 * PAGE);
    EQ(lseek(fd, 0, SEEK_CUR), 0);
    EQ(CALL(pread64, fd, q + 9, 30 * PAGE, 1000), 30 * PAGE);
    check_from(q + 9, 30 * PAGE, 20, 3);
    EQ(CALL(pread64, fd, q, 1000, 0), 1000);
    check_zero(q, 1000);
    evict(q, 40 * PAGE);
    EQ(CALL(pread64, fd, q + PAGE - 1, PAGE + 2, 1000), PAGE + 2);
    check_from(q + PAGE - 1, PAGE + 2, 20, 3);
    check_from(q + 2 * PAGE + 1, 100, 20, 2 * PAGE + 1 - 9 + 3);
    EQ(CALL(pread64, fd, q, 100, 30 * PAGE + 990), 10);
    EQ(CALL(pread64, fd, bad_in()[1], 100, 1 << 30), 0);
    char *g = guarded(1);
    EQ(CALL(pread64, fd, g, 2 * PAGE, 1000), PAGE);
    check_from(g, PAGE, 20, 3);
    evict(g, PAGE);
    EQ(CALL(pwrite64, fd, g + 10, 2 * PAGE, 0), PAGE - 10);
    EFAULT_OUT(b, CALL(pread64, fd, b, 100, 0));
    EFAULT_IN(b, CALL(pwrite64, fd, b, 100, 0));
    evict(p, PAGE);
    expect_errno(CALL(pread64, fd, p, 10, -1L), EINVAL);
    expect_errno(CALL(pwrite64, fd, p, 10, -1L), EINVAL);
    expect_errno(CALL(pread64, -1, p, 10, 0L), EBADF);
    int pipes[2];
    OK(pipe(pipes));
    expect_errno(CALL(pread64, pipes[0], p, 10, 0L), ESPIPE);
    expect_errno(CALL(pwrite64, pipes[1], p, 10, 0L), ESPIPE);
    check(p, 40 * PAGE, 20);
    close(pipes[0]), close(pipes[1]), close(fd);
    munmap(p, 40 * PAGE), munmap(q, 40 * PAGE), munmap(g, PAGE);
}
BOTH_WAYS(test)
