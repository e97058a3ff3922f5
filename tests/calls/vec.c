/* readv, writev, preadv, pwritev, preadv2, pwritev2: evicted vectors of evicted pieces. */
#include "common.h"

static long do_preadv(int fd, const struct iovec *v, int n, off_t at) {
    return EITHER(preadv(fd, v, n, at), syscall(SYS_preadv, fd, v, (long)n, at, 0L));
}
static long do_pwritev(int fd, const struct iovec *v, int n, off_t at) {
    return EITHER(pwritev(fd, v, n, at), syscall(SYS_pwritev, fd, v, (long)n, at, 0L));
}
static long do_preadv2(int fd, const struct iovec *v, int n, off_t at, int flags) {
    return EITHER(preadv2(fd, v, n, at, flags), syscall(SYS_preadv2, fd, v, (long)n, at, 0L, (long)flags));
}
static long do_pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags) {
    return EITHER(pwritev2(fd, v, n, at, flags), syscall(SYS_pwritev2, fd, v, (long)n, at, 0L, (long)flags));
}

enum { MANY = 600, EACH = 333 };
static char static_piece[EACH];

static void test(void) {
    char *p = fresh(64), *q = fresh(64);
    char stack_piece[EACH];
    struct iovec *v = place(sizeof *v * MANY, 16), *w = place(sizeof *w * MANY, 16);
    fill(p, 64 * PAGE, 30);
    for (int i = 0; i < MANY; i++) {
        v[i] = (struct iovec){p + i * EACH, EACH};
        /* Every other piece backwards, so that the order of pieces matters. */
        int j = i % 2 ? i : MANY - 2 - i;
        w[i] = (struct iovec){q + j * EACH, EACH};
    }
    /* A zero-length piece may point anywhere. */
    v[1] = (struct iovec){(void *)16, 0};
    memcpy(static_piece, p + 2 * EACH, EACH), memcpy(stack_piece, p + 3 * EACH, EACH);
    v[2].iov_base = static_piece, v[3].iov_base = stack_piece;
    size_t total = (size_t)(MANY - 1) * EACH;
    int fd = open("file", O_CREAT | O_TRUNC | O_RDWR, 0644);
    for (int way = 0; way < 3; way++) {
        OK(ftruncate(fd, 0));
        EQ(lseek(fd, 0, SEEK_SET), 0);
        evict(p, 64 * PAGE);
        evict(v, sizeof *v * MANY);
        EQ(way == 0 ? CALL(writev, fd, v, MANY) : way == 1 ? do_pwritev(fd, v, MANY, 0) : do_pwritev2(fd, v, MANY, 0,
            0),
           total);
        madvise(q, 64 * PAGE, MADV_DONTNEED);
        evict(w, sizeof *w * MANY);
        EQ(lseek(fd, 0, SEEK_SET), 0);
        EQ(way == 0   ? CALL(readv, fd, w, MANY)
           : way == 1 ? do_preadv(fd, w, MANY, 0)
                      : do_preadv2(fd, w, MANY, 0, 0),
           total);
        for (int i = 0; i < MANY - 1; i++) {
            int piece = i == 0 ? 0 : i + 1;
            check_from(w[i].iov_base, EACH, 30, piece * EACH);
        }
    }
    EQ(do_pwritev2(fd, v, 1, -1, 0), EACH);

    /* A bad second piece cuts the transfer short; a bad first one fails it. */
    struct iovec *two = ARG(struct iovec, q, 100), *both = place(2 * sizeof *both, 16);
    (void)two;
    for (void **b = bad_out(); *b; b++) {
        both[0] = (struct iovec){q, 100};
        both[1] = (struct iovec){*b, 100};
        if ((uintptr_t)*b < 1UL << 47) {
            EQ(lseek(fd, 0, SEEK_SET), 0);
            evict(q, PAGE), evict(both, 32);
            EQ(CALL(readv, fd, both, 2), 100);
            EQ(do_preadv(fd, both, 2, 0), 100);
            EQ(do_preadv2(fd, both, 2, 0, 0), 100);
        }
        both[0].iov_base = *b;
        evict(both, 32);
        EQ(lseek(fd, 0, SEEK_SET), 0);
        expect_errno(CALL(readv, fd, both, 2), EFAULT);
        expect_errno(do_preadv(fd, both, 2, 0), EFAULT);
        expect_errno(do_preadv2(fd, both, 2, 0, 0), EFAULT);
    }
    for (void **b = bad_in(); *b; b++) {
        both[0] = (struct iovec){*b, 100};
        both[1] = (struct iovec){p, 100};
        evict(both, 32);
        expect_errno(CALL(writev, fd, both, 2), EFAULT);
        expect_errno(do_pwritev(fd, both, 2, 0), EFAULT);
        expect_errno(do_pwritev2(fd, both, 2, 0, 0), EFAULT);
    }
    EFAULT_IN(b, CALL(readv, fd, b, 2));
    EFAULT_IN(b, CALL(writev, fd, b, 2));
    EFAULT_IN(b, do_preadv(fd, b, 2, 0));
    EFAULT_IN(b, do_pwritev(fd, b, 2, 0));
    EFAULT_IN(b, do_preadv2(fd, b, 2, 0, 0));
    EFAULT_IN(b, do_pwritev2(fd, b, 2, 0, 0));
    EFAULT_EDGE(b, CALL(readv, fd, b, 2));
    EFAULT_EDGE(b, CALL(writev, fd, b, 2));
    evict(v, sizeof *v * MANY);
    expect_errno(CALL(readv, -1, v, 2), EBADF);
    expect_errno(CALL(readv, fd, v, minus_one), EINVAL);
    expect_errno(CALL(writev, fd, v, 2000), EINVAL);
    expect_errno(do_preadv(fd, v, 2, -5), EINVAL);
    expect_errno(do_preadv2(fd, v, 2, 0, 1 << 30), EOPNOTSUPP);
    EQ(CALL(writev, fd, v, 0), 0);
    both[0] = (struct iovec){q, (size_t)-1};
    evict(both, 32);
    expect_errno(CALL(readv, fd, both, 1), EINVAL);
    check(p, 64 * PAGE, 30);
    close(fd), munmap(p, 64 * PAGE), munmap(q, 64 * PAGE);
}
BOTH_WAYS(test)
