/* Calls that name far more memory than there is room for: what cannot be reached is not brought in, what can be done in parts is
 * done whole, and the limit holds (it is looked at from outside). */
#include "common.h"
#include <sys/xattr.h>

enum { BYTES = 80 << 20, PART = 64 << 10 };
/* From the first page of a process to beyond all that it has mapped; the compiler must not know better. */
static volatile size_t far_bytes = 1UL << 46;
static int ends[2];
static char *area;

/* Numbers that are no addresses, as a structure holds them that is not filled in. */
static void nowhere(void) {
    struct iovec garbage[2] = {{(void *)22, far_bytes}, {(void *)22, 8}}, small = {garbage, 16};
    struct msghdr m = {.msg_iov = garbage, .msg_iovlen = 1};
    int pipes[2];
    OK(pipe(pipes)), EQ(write(pipes[1], "12345678", 8), 8);
    expect_errno(CALL(writev, pipes[1], garbage, 1), EFAULT);
    expect_errno(CALL(writev, minus_one, garbage, 2), EBADF);
    expect_errno(CALL(readv, pipes[0], garbage, 1), EFAULT);
    expect_errno(CALL(sendmsg, ends[0], &m, 0), EFAULT);
    expect_errno(CALL(process_vm_readv, getpid(), garbage, 1UL, &small, 1UL, 0UL), EFAULT);
    expect_errno(CALL(process_vm_writev, getpid(), garbage, 1UL, &small, 1UL, 0UL), EFAULT);
    expect_errno(CALL(getxattr, ".", "user.none", (void *)22, far_bytes), ENODATA);
    expect_errno(EITHER(write(pipes[1], (void *)22, far_bytes), syscall(SYS_write, pipes[1], (void *)22, far_bytes)), EFAULT);
    OK(close(pipes[0])), OK(close(pipes[1]));
}
/* A length that is wrong leads from memory that is there over a hole to more of it. */
static void over_a_hole(void) {
    OK(munmap(area + BYTES / 4, PAGE));
    struct iovec long_one = {area + BYTES / 4 - 2 * PAGE, BYTES / 2}, small = {&long_one, 16};
    expect_errno(CALL(process_vm_readv, getpid(), &long_one, 1UL, &small, 0UL, 1UL), EINVAL);
    /* As far as it goes. */
    int pipes[2];
    OK(pipe(pipes));
    EQ(CALL(writev, pipes[1], &long_one, 1), 2 * PAGE);
    OK(close(pipes[0])), OK(close(pipes[1]));
    EQ(mmap(area + BYTES / 4, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), area + BYTES / 4);
}
/* Control data of that length: the kernel takes none of it. */
static void long_control(void) {
    struct iovec one = {area, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = area, .msg_controllen = BYTES};
    expect_errno(CALL(sendmsg, ends[0], &m, 0), ENOBUFS);
}
struct sent {
    int fd, newer;
    size_t bytes, parts[4];
    int count;
    ssize_t result;
};
static void *sends(void *arg) {
    struct sent *s = arg;
    struct iovec v[4];
    size_t at = 0;
    for (int i = 0; i < s->count; at += s->parts[i++]) v[i] = (struct iovec){area + at, s->parts[i]};
    s->result = s->newer ? pwritev2(s->fd, v, s->count, -1, 0) : writev(s->fd, v, s->count);
    OK(close(s->fd));
    return NULL;
}
static void whole(int to, int from, const size_t parts[4], int count, int newer) {
    static char part[PART];
    struct sent s = {.fd = to, .newer = newer, .count = count};
    for (int i = 0; i < count; i++) s.parts[i] = parts[i], s.bytes += parts[i];
    pthread_t t;
    OK(pthread_create(&t, NULL, sends, &s));
    for (size_t at = 0; at < s.bytes; at += PART) {
        size_t n = s.bytes - at < PART ? s.bytes - at : PART;
        EQ(read_all(from, part, n), n);
        check_from(part, n, 3, at);
    }
    EQ(read(from, part, 1), 0);
    OK(pthread_join(t, NULL));
    EQ(s.result, s.bytes);
    OK(close(from));
}
static void in_parts(void) {
    for (size_t at = 0; at < BYTES; at += PART) fill_from(area + at, PART, 3, at);
    int pair[2];
    for (int newer = 0; newer < 2; newer++) {
        OK(pipe(pair)), whole(pair[1], pair[0], (size_t[4]){BYTES}, 1, newer);
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        whole(pair[1], pair[0], (size_t[]){1000, BYTES - 2001, 1, 1000}, 4, newer);
    }
}
/* One that does not wait says how much it took. */
static void not_waiting(void) {
    int pipes[2];
    OK(pipe2(pipes, O_NONBLOCK));
    struct iovec v[2] = {{area, BYTES / 2}, {area + BYTES / 2, BYTES / 2}};
    EQ(CALL(writev, pipes[1], v, 2), 64 << 10);
    expect_errno(CALL(writev, pipes[1], v, 2), EAGAIN);
    /* What is read comes where it belongs, also where it is less than there is room for. */
    static char taken[64 << 10];
    struct iovec to[2] = {{area + 8, 24 << 10}, {area + BYTES / 2, BYTES / 2}};
    EQ(CALL(readv, pipes[0], to, 2), 64 << 10);
    memcpy(taken, to[0].iov_base, 24 << 10), memcpy(taken + (24 << 10), to[1].iov_base, 40 << 10);
    check_from(taken, 64 << 10, 3, 0);
    fill_from(area, 64 << 10, 3, 0), fill_from(area + BYTES / 2, 64 << 10, 3, BYTES / 2);
    EQ(CALL(writev, pipes[1], v, 2), 64 << 10);
    EQ(preadv2(pipes[0], to, 2, -1, 0), 64 << 10), check_from(area + 8, 24 << 10, 3, 0);
    check_from(area + BYTES / 2, 40 << 10, 3, 24 << 10);
    fill_from(area, 64 << 10, 3, 0), fill_from(area + BYTES / 2, 64 << 10, 3, BYTES / 2);
    OK(close(pipes[0])), OK(close(pipes[1]));
}
static void test(void) {
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    nowhere(), long_control(), over_a_hole();
    in_parts(), not_waiting();
    OK(close(ends[0])), OK(close(ends[1]));
}
int main(void) {
    tmpdir();
    area = fresh(BYTES / PAGE);
    for (raw_mode = 0; raw_mode < 2; raw_mode++) test();
    puts("ok");
    return 0;
}
