/* sendmsg, recvmsg, sendmmsg, recvmmsg: headers, vectors, names, control data and pieces all evicted. */
#include "common.h"
#include <netinet/in.h>

static struct sockaddr_in at = {AF_INET, 0, {0}, {0}};

static struct iovec *vector(char *p, size_t n) {
    struct iovec v[2] = {{p, n / 3}, {p + n / 3, n - n / 3}};
    return arg(v, sizeof v);
}
/* Servers of datagrams have room for the largest in each of many messages. */
static void roomy(int a, int b, void *to) {
    enum { MANY = 400, ROOM = 65536, FEW = 5 };
    char *p = fresh(MANY * ROOM / PAGE), *q = fresh(16);
    struct mmsghdr *in = place(MANY * sizeof *in, 16), *out = place(MANY * sizeof *out, 16);
    fill(q, 16 * PAGE, 51);
    for (int i = 0; i < FEW; i++) {
        evict(q, 16 * PAGE);
        EQ(sendmsg(b, ARG(struct msghdr, to, sizeof at, vector(q + i, 3000 + i), 2, NULL, 0, 0), 0), 3000 + i);
    }
    for (int i = 0; i < MANY; i++) in[i].msg_hdr = (struct msghdr){.msg_iov = vector(p + i * ROOM, ROOM), .msg_iovlen = 2};
    evict(in, MANY * sizeof *in);
    EQ(CALL(recvmmsg, a, in, MANY, MSG_DONTWAIT, ARG(struct timespec, 5, 0)), FEW);
    for (int i = 0; i < FEW; i++) EQ(in[i].msg_len, 3000 + i), check_from(p + i * ROOM, 3000 + i, 51, i);
    expect_errno(CALL(recvmmsg, a, in, MANY, MSG_DONTWAIT, NULL), EAGAIN);

    /* As many as the call takes at a time; the caller goes on with the next. */
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, s));
    fill(p, MANY * ROOM, 52), evict(p, MANY * ROOM);
    for (int i = 0; i < MANY; i++)
        out[i].msg_hdr = (struct msghdr){.msg_iov = vector(p + i * ROOM, 60000), .msg_iovlen = 2};
    evict(out, MANY * sizeof *out);
    int sent = 0, n;
    char *back = fresh(15);
    while (sent < MANY) {
        CHECK((n = CALL(sendmmsg, s[0], out + sent, MANY - sent, 0)) > 0);
        for (int i = 0; i < n; i++, sent++)
            EQ(out[sent].msg_len, 60000), EQ(recv(s[1], back, 15 * PAGE, 0), 60000), check_from(back, 60000, 52, sent * ROOM);
    }
    close(s[0]), close(s[1]);
    munmap(p, MANY * ROOM), munmap(q, 16 * PAGE), munmap(back, 15 * PAGE);
}
static void test(void) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_port = 0, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof at;
    OK(bind(a, (struct sockaddr *)&at, sizeof at)), OK(getsockname(a, (struct sockaddr *)&at, &len));
    char *p = fresh(16), *q = fresh(16);
    fill(p, 16 * PAGE, 50), evict(p, 16 * PAGE);
    void *to = arg(&at, sizeof at);
    struct msghdr *m = ARG(struct msghdr, to, sizeof at, vector(p + 3, 5 * PAGE), 2, NULL, 0, 0);
    EQ(CALL(sendmsg, b, m, 0), 5 * PAGE);
    struct sockaddr_in *from = OUT(struct sockaddr_in);
    struct msghdr *r = ARG(struct msghdr, from, sizeof *from, vector(q + 1, 6 * PAGE), 2, NULL, 0, 0);
    EQ(CALL(recvmsg, a, r, 0), 5 * PAGE), check_from(q + 1, 5 * PAGE, 50, 3);
    EQ(r->msg_namelen, sizeof *from), EQ(from->sin_family, AF_INET), EQ(r->msg_flags, 0);
    EFAULT_IN(x, CALL(sendmsg, b, x, 0));
    EFAULT_EDGE(x, CALL(sendmsg, b, x, 0));
    EFAULT_IN(x, CALL(recvmsg, a, x, MSG_DONTWAIT));
    for (void **x = bad_in(); *x; x++) {
        struct iovec bad = {*x, 100};
        expect_errno(CALL(sendmsg, b, ARG(struct msghdr, *x, sizeof at, vector(p, 100), 2, NULL, 0, 0), 0), EFAULT);
        expect_errno(CALL(sendmsg, b, ARG(struct msghdr, to, sizeof at, *x, 2, NULL, 0, 0), 0), EFAULT);
        expect_errno(CALL(sendmsg, b, ARG(struct msghdr, to, sizeof at, arg(&bad, sizeof bad), 1, NULL, 0, 0), 0),
            EFAULT);
        expect_errno(CALL(sendmsg, b, ARG(struct msghdr, to, sizeof at, vector(p, 100), 2, *x, 32, 0), 0), EFAULT);
    }
    expect_errno(CALL(sendmsg, -1, m, 0), EBADF);
    expect_errno(CALL(recvmsg, a, r, MSG_DONTWAIT), EAGAIN);
    expect_errno(CALL(sendmsg, b, ARG(struct msghdr, to, sizeof at, vector(p, 100), 5000, NULL, 0, 0), 0), EMSGSIZE);

    /* Many messages in one call. */
    enum { MANY = 100 };
    struct mmsghdr *out = place(MANY * sizeof *out, 16), *in = place(MANY * sizeof *in, 16);
    madvise(q, 16 * PAGE, MADV_DONTNEED);
    for (int i = 0; i < MANY; i++) {
        out[i] = (struct mmsghdr){{to, sizeof at, vector(p + i * 500, 400 + i), 2, NULL, 0, 0}, 0};
        in[i] = (struct mmsghdr){{NULL, 0, vector(q + i * 600, 600), 2, NULL, 0, 0}, 0};
    }
    evict(out, MANY * sizeof *out), evict(in, MANY * sizeof *in);
    EQ(CALL(sendmmsg, b, out, MANY, 0), MANY);
    EQ(out[MANY - 1].msg_len, 400 + MANY - 1);
    EQ(CALL(recvmmsg, a, in, MANY, MSG_WAITFORONE, ARG(struct timespec, 5, 0)), MANY);
    for (int i = 0; i < MANY; i++) EQ(in[i].msg_len, 400 + i), check_from(q + i * 600, 400 + i, 50, i * 500);
    expect_errno(CALL(recvmmsg, a, in, MANY, MSG_DONTWAIT, NULL), EAGAIN);
    EFAULT_IN(x, CALL(sendmmsg, b, x, 2, 0));
    EFAULT_IN(x, CALL(recvmmsg, a, x, 2, MSG_DONTWAIT, NULL));
    EFAULT_IN(x, CALL(recvmmsg, a, in, 2, MSG_DONTWAIT, x));
    expect_errno(CALL(sendmmsg, -1, out, 2, 0), EBADF);
    roomy(a, b, to);

    /* A descriptor in control data. */
    int s[2], pipes[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s)), OK(pipe(pipes));
    char *control = place(CMSG_SPACE(sizeof(int)), 8), *back = place(CMSG_SPACE(sizeof(int)), 8);
    struct cmsghdr *c = (struct cmsghdr *)control;
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), pipes + 1, sizeof(int));
    evict(control, 32);
    EQ(CALL(sendmsg, s[0], ARG(struct msghdr, NULL, 0, vector(p, 100), 2, control, CMSG_SPACE(4), 0), 0), 100);
    r = ARG(struct msghdr, NULL, 0, vector(q, 100), 2, back, CMSG_SPACE(4), 0);
    EQ(CALL(recvmsg, s[1], r, 0), 100), check(q, 100, 50), EQ(r->msg_controllen, CMSG_SPACE(4));
    int got;
    memcpy(&got, CMSG_DATA((struct cmsghdr *)back), sizeof got);
    EQ(write(got, "y", 1), 1), EQ(read(pipes[0], q, 1), 1), EQ(*q, 'y');
    close(got), close(s[0]), close(s[1]), close(pipes[0]), close(pipes[1]), close(a), close(b);
    munmap(p, 16 * PAGE), munmap(q, 16 * PAGE);
}
BOTH_WAYS(test)
