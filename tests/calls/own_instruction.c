/* Calls made by an instruction of the program's own, whose structures lie on its stack and point to evicted memory. */
#include "common.h"
#include "own_call.h"

int main(void) {
    tmpdir();
    char *p = fresh(256), *q = fresh(256);
    fill(p, 256 * PAGE, 1);
    int fd = open("file", O_CREAT | O_RDWR, 0600), ends[2];
    CHECK(fd >= 0);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 20; i++) {
        struct iovec out[2] = {{p + 10, 5000}, {p + 100 * PAGE, 5000}}, in[2] = {{q + 10, 5000}, {q + 100 * PAGE, 5000}};
        struct msghdr send = {.msg_iov = out, .msg_iovlen = 2}, receive = {.msg_iov = in, .msg_iovlen = 2};
        evict(p, 256 * PAGE), evict(q, 256 * PAGE);
        EQ(lseek(fd, 0, SEEK_SET), 0);
        EQ(RAW(writev, fd, out, 2), 10000);
        EQ(lseek(fd, 0, SEEK_SET), 0);
        EQ(RAW(readv, fd, in, 2), 10000);
        check_from(q + 10, 5000, 1, 10), check_from(q + 100 * PAGE, 5000, 1, 100 * PAGE);
        OK(madvise(q, 256 * PAGE, MADV_DONTNEED)), evict(p, 256 * PAGE);
        EQ(call6(SYS_pwritev, fd, (long)out, 2, 0, 0, 0), 10000);
        EQ(call6(SYS_preadv, fd, (long)in, 2, 0, 0, 0), 10000);
        check_from(q + 100 * PAGE, 5000, 1, 100 * PAGE);
        evict(p, 256 * PAGE), evict(q, 256 * PAGE);
        EQ(RAW(sendmsg, ends[0], &send, 0), 10000);
        EQ(RAW(recvmsg, ends[1], &receive, MSG_WAITALL), 10000);
        check_from(q + 10, 5000, 1, 10), check_from(q + 100 * PAGE, 5000, 1, 100 * PAGE);
        /* Those whose pointers are plain to see. */
        evict(p, 256 * PAGE), evict(q, 256 * PAGE);
        EQ(RAW(write, ends[0], p + 7, 6000), 6000), EQ(RAW(read, ends[1], q + 7, 6000), 6000);
        check_from(q + 7, 6000, 1, 7);
        struct mmsghdr many[1] = {{.msg_hdr = send}};
        evict(p, 256 * PAGE);
        EQ(call6(SYS_sendmmsg, ends[0], (long)many, 1, 0, 0, 0), 1), EQ(many[0].msg_len, 10000);
        evict(q, 256 * PAGE);
        many[0].msg_hdr = receive;
        EQ(call6(SYS_recvmmsg, ends[1], (long)many, 1, MSG_WAITALL, 0, 0), 1), EQ(many[0].msg_len, 10000);
        check_from(q + 10, 5000, 1, 10), check_from(q + 100 * PAGE, 5000, 1, 100 * PAGE);
    }
    puts("ok");
    return 0;
}
