/* Lengths that the kernel refuses, or cuts: the answers are printed, and are the same for every memory; nothing is
 * overwritten. */
#include "common.h"

enum { FILE_BYTES = 2 << 20, ROOM = 64 << 10 };
static int file, ends[2], pipes[2];
static char *area;

static void untouched(void) { check(area, FILE_BYTES + ROOM, 7); }
static void refill(void) { fill(area, FILE_BYTES + ROOM, 7), evict(area, FILE_BYTES + ROOM); }
static void show(const char *call, size_t n, int count, long result) {
    printf("%s %zx %d: %ld %d\n", call, n, count, result, result < 0 ? errno : 0);
}
#define SHOW(count, name, ...) show(#name, n, count, syscall(SYS_##name, __VA_ARGS__))

/* From any address of memory on, each of these goes beyond the end of what a process can have. */
static const size_t huge[] = {
    -1UL, -2UL, -4096UL, 1UL << 63, (1UL << 63) - 1, 0xffffffff00000000UL, 1UL << 62, 1UL << 48, (1UL << 47) - 4096};

static void files(size_t n) {
    EQ(lseek(file, 0, SEEK_SET), 0);
    SHOW(0, read, file, area, n);
    SHOW(0, pread64, file, area, n, 0L);
    SHOW(0, write, file, area, n);
    SHOW(0, pwrite64, file, area, n, 0L);
    SHOW(0, pwrite64, file, area, n, -1L);
    SHOW(0, write, pipes[1], area, n);
    EQ(lseek(file, 0, SEEK_CUR), 0);
    untouched();
}
static void restore(void) {
    refill();
    OK(ftruncate(file, FILE_BYTES)), EQ(lseek(file, 0, SEEK_SET), 0);
    char *p = fresh(FILE_BYTES / PAGE);
    fill(p, FILE_BYTES, 3), EQ(pwrite(file, p, FILE_BYTES, 0), FILE_BYTES);
    OK(munmap(p, FILE_BYTES));
}
/* A negative length is refused; one that is too large counts as the largest, so that what exists is moved. */
static void vectors(size_t n) {
    for (int count = 1; count <= 3; count += 2) {
        struct iovec *v = (struct iovec *)place(3 * sizeof *v, 16);
        for (int k = 0; k < 3; k++) v[k] = (struct iovec){area + k * 8192, 4096};
        v[count - 1].iov_len = n;
        for (int call = 0; call < 5; call++) {
            evict(v, 3 * sizeof *v);
            switch (call) {
            case 0: SHOW(count, readv, file, v, count); break;
            case 1: SHOW(count, preadv, file, v, count, 0L, 0L); break;
            case 2: SHOW(count, preadv2, file, v, count, 0L, 0L, 0); break;
            case 3: SHOW(count, writev, file, v, count); break;
            default: SHOW(count, pwritev, file, v, count, 0L, 0L);
            }
            if (n >> 63)
                EQ(lseek(file, 0, SEEK_CUR), 0), untouched();
            else
                restore();
        }
        if (!(n >> 63)) continue;
        struct msghdr *m = ARG(struct msghdr, .msg_iov = v, .msg_iovlen = count);
        SHOW(count, recvmsg, ends[0], m, MSG_DONTWAIT);
        SHOW(count, sendmsg, ends[1], m, MSG_DONTWAIT);
        untouched();
    }
}
/* Sockets take what there is room for, from memory that there is. */
static void sockets(size_t n) {
    static char got[FILE_BYTES + ROOM];
    long sent = syscall(SYS_sendto, ends[1], area, n, MSG_DONTWAIT, NULL, 0);
    CHECK(sent > 0 && sent <= FILE_BYTES + ROOM);
    EQ(read_all(ends[0], got, sent), sent), check(got, sent, 7);
    EQ(send(ends[1], "0123456789", 10, 0), 10);
    SHOW(0, recvfrom, ends[0], area, n, MSG_DONTWAIT, NULL, NULL);
    OK(memcmp(area, "0123456789", 10)), fill(area, 10, 7);
    untouched();
}
static void counts(void) {
    struct iovec *v = (struct iovec *)place(1025 * sizeof *v, 16);
    for (int k = 0; k < 1025; k++) v[k] = (struct iovec){area, 16};
    const long numbers[] = {1025, -1, 1 << 20, 0, 1L << 32};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size_t n = numbers[i];
        SHOW(0, readv, file, v, n);
        SHOW(0, writev, file, v, n);
        struct msghdr *m = ARG(struct msghdr, .msg_iov = v, .msg_iovlen = n);
        SHOW(0, sendmsg, ends[1], m, MSG_DONTWAIT);
    }
    /* More than the file has, over memory that ends: what fits is read, what does not exist is not overwritten. */
    char *short_one = guarded(16);
    fill(short_one, 16 * PAGE, 9), evict(short_one, 16 * PAGE);
    EQ(pread(file, short_one, 1UL << 32, 0), 16 * PAGE), check(short_one, 16 * PAGE, 3);
    EQ(pwrite(file, short_one, 1UL << 32, FILE_BYTES), 16 * PAGE), OK(ftruncate(file, FILE_BYTES));
    EQ(pread(file, area, 0, 0), 0), EQ(pwrite(file, area, 0, 0), 0);
    untouched();
}
int main(void) {
    tmpdir();
    area = guarded((FILE_BYTES + ROOM) / PAGE);
    make_file("file", FILE_BYTES, 3);
    file = open("file", O_RDWR);
    CHECK(file >= 0);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)), OK(pipe(pipes));
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        refill();
        files(huge[i]), vectors(huge[i]), sockets(huge[i]);
        struct stat st;
        OK(fstat(file, &st)), EQ(st.st_size, FILE_BYTES);
    }
    counts();
    puts("ok");
    return 0;
}
