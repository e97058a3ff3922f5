/* sendfile and copy_file_range: offsets in evicted memory. */
#include "common.h"
#include <sys/sendfile.h>

static void test(void) {
    make_file("from", 10 * PAGE, 90);
    int in = open("from", O_RDONLY), out = open("to", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *back = fresh(10);
    off_t *at = ARG(off_t, 100);
    EQ(CALL(sendfile, out, in, at, 5 * PAGE), 5 * PAGE), EQ(*at, 5 * PAGE + 100);
    EQ(pread(out, back, 5 * PAGE, 0), 5 * PAGE), check_from(back, 5 * PAGE, 90, 100);
    off_t *a = ARG(off_t, 3 * PAGE), *b = ARG(off_t, 0);
    long n = CALL(copy_file_range, in, a, out, b, 2 * PAGE, 0);
    EQ(n, 2 * PAGE), EQ(*a, 5 * PAGE), EQ(*b, 2 * PAGE);
    EQ(pread(out, back, 2 * PAGE, 0), 2 * PAGE), check_from(back, 2 * PAGE, 90, 3 * PAGE);
    EFAULT_IN(p, CALL(sendfile, out, in, p, 10));
    EFAULT_EDGE(p, CALL(sendfile, out, in, p, 10));
    EFAULT_IN(p, CALL(copy_file_range, in, p, out, b, 10, 0));
    EFAULT_IN(p, CALL(copy_file_range, in, a, out, p, 10, 0));
    expect_errno(CALL(sendfile, out, -1, at, 10), EBADF);
    expect_errno(CALL(sendfile, out, in, ARG(off_t, -1), 10), EINVAL);
    expect_errno(CALL(copy_file_range, in, a, out, b, 10, 8), EINVAL);
    close(in), close(out), munmap(back, 10 * PAGE);
}
BOTH_WAYS(test)
