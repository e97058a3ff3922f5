/* splice, vmsplice, tee. A page given to a pipe by vmsplice must keep its bytes there whatever happens to it. */
#include "common.h"

static void test(void) {
    make_file("f", 4 * PAGE, 100);
    int fd = open("f", O_RDWR), p[2], q[2];
    OK(pipe(p)), OK(pipe(q));
    char *back = fresh(8), *from = fresh(8);
    loff_t *at = ARG(loff_t, 50);
    EQ(CALL(splice, fd, at, p[1], NULL, PAGE, 0), PAGE), EQ(*at, PAGE + 50);
    EQ(CALL(tee, p[0], q[1], PAGE, 0), PAGE);
    EQ(read_all(p[0], back, PAGE), PAGE), check_from(back, PAGE, 100, 50);
    evict(back, PAGE);
    EQ(read_all(q[0], back, PAGE), PAGE), check_from(back, PAGE, 100, 50);
    fill(from, 8 * PAGE, 101), evict(from, 8 * PAGE);
    struct iovec v[2] = {{from + 3, PAGE}, {from + 3 * PAGE, 2 * PAGE}};
    EQ(CALL(vmsplice, p[1], arg(v, sizeof v), 2, 0), 3 * PAGE);
    evict(from, 8 * PAGE);
    EQ(read_all(p[0], back, 3 * PAGE), 3 * PAGE);
    check_from(back, PAGE, 101, 3), check_from(back + PAGE, 2 * PAGE, 101, 3 * PAGE);
    check(from, 8 * PAGE, 101);
    /* Out of a pipe into memory. */
    EQ(write(p[1], from, 2 * PAGE), 2 * PAGE);
    struct iovec w = {back + 9, 2 * PAGE};
    evict(back, 8 * PAGE);
    EQ(CALL(vmsplice, p[0], arg(&w, sizeof w), 1, 0), 2 * PAGE), check(back + 9, 2 * PAGE, 101);
    EFAULT_IN(b, CALL(splice, fd, b, p[1], NULL, PAGE, 0));
    EFAULT_IN(b, CALL(vmsplice, p[1], b, 1, 0));
    for (void **b = bad_in(); *b; b++) {
        struct iovec bad = {*b, 100};
        expect_errno(CALL(vmsplice, p[1], arg(&bad, sizeof bad), 1, 0), EFAULT);
    }
    expect_errno(CALL(tee, p[0], fd, PAGE, 0), EINVAL);
    expect_errno(CALL(splice, -1, NULL, p[1], NULL, PAGE, 0), EBADF);
    expect_errno(CALL(vmsplice, fd, arg(v, sizeof v), 1, 0), EBADF);
    expect_errno(CALL(vmsplice, p[1], arg(v, sizeof v), 5000, 0), EINVAL);
    for (int i = 0; i < 2; i++) close(p[i]), close(q[i]);
    close(fd), munmap(back, 8 * PAGE), munmap(from, 8 * PAGE);
}
BOTH_WAYS(test)
