/* socketpair, bind, connect, accept, accept4, getsockname, getpeername. */
#include "common.h"
#include <netinet/in.h>

static socklen_t *size(unsigned n) { return ARG(socklen_t, n); }

static void test(void) {
    int *pair = place(8, 4), c;
    OK(CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, pair));
    EQ(write(pair[0], "x", 1), 1), close(pair[0]), close(pair[1]);
    evict(pair, 8);
    OK(CALL(socketpair, AF_UNIX, SOCK_DGRAM, 0, pair)), close(pair[0]), close(pair[1]);
    EFAULT_OUT(p, CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, p));
    expect_errno(CALL(socketpair, AF_UNIX, 77, 0, pair), EINVAL);

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in *any = ARG(struct sockaddr_in, AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}), *got;
    OK(CALL(bind, fd, (struct sockaddr *)any, sizeof *any));
    OK(listen(fd, 16));
    socklen_t *n = size(sizeof *got);
    got = OUT(struct sockaddr_in);
    OK(CALL(getsockname, fd, (struct sockaddr *)got, n));
    EQ(*n, sizeof *got), EQ(got->sin_addr.s_addr, htonl(INADDR_LOOPBACK)), CHECK(got->sin_port);
    in_port_t port = got->sin_port;
    for (int four = 0; four < 2; four++) {
        int to = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in *where = ARG(struct sockaddr_in, AF_INET, port, {htonl(INADDR_LOOPBACK)}, {0});
        OK(CALL(connect, to, (struct sockaddr *)where, sizeof *where));
        struct sockaddr_in *from = four ? OLD(struct sockaddr_in) : OUT(struct sockaddr_in);
        n = size(sizeof *from);
        c = four ? CALL(accept4, fd, (struct sockaddr *)from, n, SOCK_CLOEXEC) : CALL(accept, fd,
            (struct sockaddr *)from, n);
        CHECK(c >= 0), EQ(*n, sizeof *from);
        got = OUT(struct sockaddr_in);
        OK(CALL(getsockname, to, (struct sockaddr *)got, size(sizeof *got)));
        EQ(got->sin_port, from->sin_port);
        got = OLD(struct sockaddr_in);
        OK(CALL(getpeername, c, (struct sockaddr *)got, size(sizeof *got)));
        EQ(got->sin_port, from->sin_port);
        EFAULT_OUT(p, CALL(getsockname, c, p, size(16)));
        EFAULT_OUT(p, CALL(getpeername, c, p, size(16)));
        EFAULT_IN(p, CALL(getpeername, c, (struct sockaddr *)got, p));
        close(c), close(to);
        /* A refused address still takes the connection. */
        to = socket(AF_INET, SOCK_STREAM, 0);
        OK(connect(to, (struct sockaddr *)where, sizeof *where));
        c = CALL(accept, fd, NULL, NULL);
        CHECK(c >= 0), close(c), close(to);
    }
    /* Only as much of the address as there is room for. */
    got = OLD(struct sockaddr_in);
    n = size(2);
    OK(CALL(getsockname, fd, (struct sockaddr *)got, n));
    EQ(*n, sizeof *got), EQ(got->sin_family, AF_INET), EQ(got->sin_port, 0xa5a5);
    expect_errno(CALL(getsockname, fd, (struct sockaddr *)got, size(-1)), EINVAL);
    EFAULT_IN(p, CALL(bind, socket(AF_INET, SOCK_STREAM, 0), p, 16));
    EFAULT_IN(p, CALL(connect, fd, p, 16));
    expect_errno(CALL(bind, fd, (struct sockaddr *)any, 4), EINVAL);
    expect_errno(CALL(getpeername, fd, (struct sockaddr *)got, size(16)), ENOTCONN);
    expect_errno(CALL(getsockname, -1, (struct sockaddr *)got, size(16)), EBADF);
    expect_errno(CALL(accept, 0, NULL, NULL), ENOTSOCK);
    OK(fcntl(fd, F_SETFL, O_NONBLOCK));
    expect_errno(CALL(accept, fd, (struct sockaddr *)got, size(16)), EAGAIN);
    expect_errno(CALL(accept4, fd, (struct sockaddr *)got, size(16), 0), EAGAIN);
    close(fd);

    /* Unix addresses are strings of any length. */
    struct sockaddr_un *u = ARG(struct sockaddr_un, AF_UNIX, "sock"), *back = OUT(struct sockaddr_un);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    OK(CALL(bind, fd, (struct sockaddr *)u, sizeof *u)), OK(listen(fd, 4));
    int to = socket(AF_UNIX, SOCK_STREAM, 0);
    evict(u, sizeof *u);
    OK(CALL(connect, to, (struct sockaddr *)u, sizeof *u));
    OK(CALL(getpeername, to, (struct sockaddr *)back, size(sizeof *back))), OK(strcmp(back->sun_path, "sock"));
    close(to), close(fd), OK(unlink("sock"));
    for (int i = 3; i < 40; i++) close(i);
}
int main(void) {
    tmpdir();
    close(0), open("/dev/null", O_RDWR);
    for (raw_mode = 0; raw_mode < 2; raw_mode++) test();
    puts("ok");
    return 0;
}
