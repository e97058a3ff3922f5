/* getsockopt and setsockopt. */
#include "common.h"
#include <netinet/in.h>
#include <netinet/tcp.h>

static void test(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), *value;
    OK(CALL(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, ARG(int, 1), sizeof(int)));
    value = OUT(int);
    socklen_t *n = ARG(socklen_t, sizeof(int));
    OK(CALL(getsockopt, fd, SOL_SOCKET, SO_REUSEADDR, value, n)), EQ(*value, 1), EQ(*n, 4);
    struct timeval *t = ARG(struct timeval, 3, 500000);
    OK(CALL(setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, t, sizeof *t));
    struct timeval *back = OLD(struct timeval);
    OK(CALL(getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, back, ARG(socklen_t, sizeof *back)));
    EQ(back->tv_sec, 3), EQ(back->tv_usec, 500000);
    struct tcp_info *info = OUT(struct tcp_info);
    OK(CALL(getsockopt, fd, IPPROTO_TCP, TCP_INFO, info, ARG(socklen_t, sizeof *info))),
        EQ(info->tcpi_state, TCP_CLOSE);
    EFAULT_IN(p, CALL(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, p, sizeof(int)));
    EFAULT_EDGE(p, CALL(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, p, sizeof(int)));
    EFAULT_OUT(p, CALL(getsockopt, fd, SOL_SOCKET, SO_REUSEADDR, p, ARG(socklen_t, 4)));
    EFAULT_IN(p, CALL(getsockopt, fd, SOL_SOCKET, SO_REUSEADDR, value, p));
    evict(value, 4);
    expect_errno(CALL(getsockopt, -1, SOL_SOCKET, SO_REUSEADDR, value, ARG(socklen_t, 4)), EBADF);
    expect_errno(CALL(getsockopt, fd, 9999, 1, value, ARG(socklen_t, 4)), EOPNOTSUPP);
    expect_errno(CALL(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, value, 1), EINVAL);
    expect_errno(CALL(setsockopt, fd, SOL_SOCKET, 9999, value, 4), ENOPROTOOPT);
    close(fd);
}
BOTH_WAYS(test)
