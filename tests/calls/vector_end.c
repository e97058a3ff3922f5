/* Vectors with an element that no process can have: at an address of the kernel, or from one of the process's to there, or of a negative length. The
 * kernel refuses all of such a vector before anything is moved, however good and long what comes before is; one that is merely not mapped ends it. */
#include "common.h"
#include "own_call.h"

enum { LONG = 3 << 20, MOST = 6, FILE_BYTES = 4 << 20 };
static char *memory, *hole;
static int file, pipes[2], nonblocking[2], streams[2], messages[2];

static const struct iovec bad[] = {
    {(void *)0xffff800000000000, 4096}, {(void *)0xffff888000000000, 1}, {(void *)0xffffffffff600000, 16},
    {(void *)-4096L, 8192}, {(void *)0x7fff00000000, 1UL << 62}, {NULL, 1UL << 63},
};
enum { BADS = sizeof bad / sizeof *bad };

/* -errno of a call that fails, by the library or by an instruction of the program's. */
static long made(long nr, long a, long b, long c, long d, long e, long f) {
    if (!raw_mode) return call6(nr, a, b, c, d, e, f);
    long result = syscall(nr, a, b, c, d, e, f);
    return result < 0 ? -errno : result;
}
/* All calls that take a vector, of whatever there is. */
static long vector_call(int way, struct iovec *parts, long count) {
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = count};
    struct iovec there = {memory, LONG};
    switch (way) {
    case 0: return made(SYS_readv, file, (long)parts, count, 0, 0, 0);
    case 1: return made(SYS_writev, file, (long)parts, count, 0, 0, 0);
    case 2: return made(SYS_preadv, file, (long)parts, count, 4096, 0, 0);
    case 3: return made(SYS_pwritev, file, (long)parts, count, 4096, 0, 0);
    case 4: return made(SYS_preadv2, file, (long)parts, count, -1, 0, 0);
    case 5: return made(SYS_pwritev2, file, (long)parts, count, -1, 0, RWF_DSYNC);
    case 6: return made(SYS_writev, pipes[1], (long)parts, count, 0, 0, 0);
    case 7: return made(SYS_readv, pipes[0], (long)parts, count, 0, 0, 0);
    case 8: return made(SYS_writev, nonblocking[1], (long)parts, count, 0, 0, 0);
    case 9: return made(SYS_readv, nonblocking[0], (long)parts, count, 0, 0, 0);
    case 10: return made(SYS_writev, streams[1], (long)parts, count, 0, 0, 0);
    case 11: return made(SYS_readv, streams[0], (long)parts, count, 0, 0, 0);
    case 12: return made(SYS_sendmsg, streams[1], (long)&m, 0, 0, 0, 0);
    case 13: return made(SYS_recvmsg, streams[0], (long)&m, 0, 0, 0, 0);
    case 14: return made(SYS_writev, messages[1], (long)parts, count, 0, 0, 0);
    case 15: return made(SYS_readv, messages[0], (long)parts, count, 0, 0, 0);
    case 16: return made(SYS_sendmsg, messages[1], (long)&m, 0, 0, 0, 0);
    case 17: return made(SYS_recvmsg, messages[0], (long)&m, 0, 0, 0, 0);
    default: return made(SYS_process_vm_readv, getpid(), (long)parts, count, (long)&there, 1, 0);
    }
}
enum { WAYS = 19 };

/* As many good elements as there are bytes for, and the bad one where it is to be. */
static void refused(int way, const struct iovec *worst, int at, int count, size_t bytes) {
    struct iovec parts[MOST];
    for (int i = 0; i < count; i++) parts[i] = (struct iovec){memory + LONG / count * i, bytes / count};
    parts[at] = *worst;
    long got = vector_call(way, parts, count), want = (ssize_t)worst->iov_len < 0 ? -EINVAL : -EFAULT;
    if (got != want)
        die("way %d, element %d of %d is %p with %ld bytes, others %zu: %ld, not %ld (raw %d)", way, at, count, worst->iov_base,
            (long)worst->iov_len, bytes / count, got, want, raw_mode);
    EQ(lseek(file, 0, SEEK_CUR), 0);
}
/* Neither the memory nor what it was to go to or come from has changed. */
static void nothing_moved(void) {
    char *back = fresh(LONG / PAGE), one[16];
    check(memory, LONG, 1);
    for (size_t at = 0; at < FILE_BYTES; at += MIB) EQ(pread(file, back, MIB, at), MIB), check_from(back, MIB, 2, at);
    EQ(pread(file, back, 1, FILE_BYTES), 0), OK(munmap(back, LONG));
    int from[] = {pipes[0], nonblocking[0], streams[0], messages[0]}, to[] = {pipes[1], nonblocking[1], streams[1], messages[1]};
    for (int i = 0; i < 4; i++) {
        EQ(read(from[i], one, 16), 10), CHECK(!memcmp(one, "only these", 10));
        EQ(write(to[i], "only these", 10), 10);
    }
}
/* What is merely not there ends the vector: what comes before is moved. */
static void ends_at_hole(void) {
    char *back = fresh(LONG / PAGE);
    struct iovec parts[2] = {{hole - 8192, 8192 + 100}, {memory, 100}};
    fill(hole - 8192, 8192, 3), evict(hole - 8192, 8192);
    EQ(pwritev(file, parts, 2, FILE_BYTES), 8192), EQ(pread(file, back, LONG, FILE_BYTES), 8192), check(back, 8192, 3);
    OK(ftruncate(file, FILE_BYTES));
    evict(hole - 8192, 8192), EQ(preadv(file, parts, 2, 0), 8192), check(hole - 8192, 8192, 2);
    parts[0].iov_base = hole, expect_errno(pwritev(file, parts, 2, 0), EFAULT);
    OK(munmap(back, LONG));
}

static void all(void) {
    const size_t lengths[] = {60, 60000, LONG};
    for (int way = 0; way < WAYS; way++)
        for (int n = 0; n < 3 * BADS; n++)
            for (int at = 0; at < MOST; at += at ? 2 : 1) {
                if (n % 4 == 0) evict_some(memory, LONG);
                refused(way, &bad[n / 3], at, MOST, lengths[n % 3]);
                if (at < 3) refused(way, &bad[n / 3], at, 3, lengths[n % 3]);
            }
    nothing_moved(), ends_at_hole();
}
int main(void) {
    alarm(60), tmpdir(), pressure(40);
    memory = fresh(LONG / PAGE), hole = guarded(4) + 4 * PAGE;
    fill(memory, LONG, 1), make_file("file", FILE_BYTES, 2);
    CHECK((file = open("file", O_RDWR)) >= 0);
    OK(pipe(pipes)), OK(pipe2(nonblocking, O_NONBLOCK));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, streams)), OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, messages));
    int to[] = {pipes[1], nonblocking[1], streams[1], messages[1]};
    for (int i = 0; i < 4; i++) EQ(write(to[i], "only these", 10), 10);
    for (raw_mode = 0; raw_mode < 2; raw_mode++) all();
    puts("ok");
    return 0;
}
