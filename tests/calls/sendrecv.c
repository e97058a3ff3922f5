/* sendto, recvfrom, and send and recv above them. */
#include "common.h"
#include <netinet/in.h>

static void test(void) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}}, from_addr = at;
    socklen_t n = sizeof at;
    OK(bind(a, (struct sockaddr *)&at, sizeof at)), OK(getsockname(a, (struct sockaddr *)&at, &n));
    OK(bind(b, (struct sockaddr *)&from_addr, sizeof at)), OK(getsockname(b, (struct sockaddr *)&from_addr, &n));
    char *p = fresh(16), *q = fresh(16);
    fill(p, 16 * PAGE, 40), evict(p, 16 * PAGE);
    struct sockaddr *to = arg(&at, sizeof at);
    EQ(CALL(sendto, b, p + 5, 9 * PAGE, 0, to, sizeof at), 9 * PAGE);
    struct sockaddr_in *from = OUT(struct sockaddr_in);
    socklen_t *m = ARG(socklen_t, sizeof *from);
    EQ(CALL(recvfrom, a, q + 11, 16 * PAGE - 11, 0, (struct sockaddr *)from, m), 9 * PAGE);
    check_from(q + 11, 9 * PAGE, 40, 5), EQ(from->sin_port, from_addr.sin_port), EQ(*m, sizeof *from);
    /* A datagram longer than the buffer is cut; the buffer beyond it may be bad. */
    EQ(CALL(sendto, b, p, 2 * PAGE, 0, to, sizeof at), 2 * PAGE);
    evict(q, 16 * PAGE);
    EQ(CALL(recvfrom, a, q, PAGE, MSG_TRUNC, NULL, NULL), 2 * PAGE), check(q, PAGE, 40);
    EQ(CALL(sendto, b, p, 100, 0, to, sizeof at), 100);
    char *g = guarded(1);
    EQ(CALL(recvfrom, a, g + PAGE - 100, 4 * PAGE, 0, NULL, NULL), 100), check(g + PAGE - 100, 100, 40);
    expect_errno(CALL(recvfrom, a, q, PAGE, MSG_DONTWAIT, NULL, NULL), EAGAIN);
    expect_errno(CALL(recvfrom, a, bad_in()[1], PAGE, MSG_DONTWAIT, NULL, NULL), EAGAIN);
    EFAULT_IN(x, CALL(sendto, b, x, 100, 0, to, sizeof at));
    EFAULT_IN(x, CALL(sendto, b, p, 100, 0, x, sizeof at));
    EFAULT_EDGE(x, CALL(sendto, b, p, 100, 0, x, sizeof at));
    evict(p, 16 * PAGE);
    expect_errno(CALL(sendto, b, p, 100, 0, NULL, 0), EDESTADDRREQ);
    expect_errno(CALL(sendto, -1, p, 100, 0, NULL, 0), EBADF);
    expect_errno(CALL(sendto, b, p, 16 * PAGE, 0, to, sizeof at), EMSGSIZE);

    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    EQ(send(s[0], p, 3 * PAGE, 0), 3 * PAGE);
    madvise(q, 16 * PAGE, MADV_DONTNEED);
    EQ(recv(s[1], q + 1, 3 * PAGE, MSG_PEEK | MSG_WAITALL), 3 * PAGE), check(q + 1, 3 * PAGE, 40);
    evict(q, 16 * PAGE);
    EQ(CALL(recvfrom, s[1], q + 2, 3 * PAGE, MSG_WAITALL, NULL, NULL), 3 * PAGE), check(q + 2, 3 * PAGE, 40);
    EQ(send(s[0], p, 10, 0), 10);
    EFAULT_OUT(x, CALL(recvfrom, s[1], x, 10, MSG_PEEK, NULL, NULL));
    expect_errno(CALL(sendto, 1, p, 10, 0, NULL, 0), ENOTSOCK);
    close(s[0]), close(s[1]), close(a), close(b);
    munmap(p, 16 * PAGE), munmap(q, 16 * PAGE), munmap(g, PAGE);
}
int main(void) {
    tmpdir();
    int out = dup(1);
    close(1), open("/dev/null", O_RDWR);
    for (raw_mode = 0; raw_mode < 2; raw_mode++) test();
    dup2(out, 1);
    puts("ok");
    return 0;
}
