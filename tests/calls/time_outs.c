/* SO_SNDTIMEO and SO_RCVTIMEO of a TCP connection are for the whole of a call, however long it is. */
#include "common.h"
#include <netinet/in.h>

enum { BYTES = 8 << 20, PIECE_BYTES = 64 << 10, PAUSE_MS = 5 };

/* As slow as this, all of it would take more than half a second. */
static pid_t slow(int other, int fd, int sends) {
    return CHILD({
        static char piece[PIECE_BYTES];
        close(other);
        long n;
        do {
            sleep_ms(PAUSE_MS);
            n = sends ? send(fd, piece, sizeof piece, MSG_NOSIGNAL) : recv(fd, piece, sizeof piece, 0);
        } while (n > 0);
    });
}

static void connection(int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int small = PIECE_BYTES, listens = socket(AF_INET, SOCK_STREAM, 0);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listens >= 0 && ends[1] >= 0);
    OK(setsockopt(listens, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    OK(setsockopt(listens, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    OK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    OK(setsockopt(ends[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    OK(bind(listens, (struct sockaddr *)&at, len)), OK(getsockname(listens, (struct sockaddr *)&at, &len));
    OK(listen(listens, 1)), OK(connect(ends[1], (struct sockaddr *)&at, len));
    CHECK((ends[0] = accept(listens, NULL, NULL)) >= 0);
    OK(close(listens));
}

int main(void) {
    char *memory = fresh(BYTES / PAGE);
    memset(memory, 7, BYTES);
    for (int sends = 0; sends < 2; sends++) {
        for (int message = 0; message < 2; message++) {
            int ends[2];
            connection(ends);
            struct timeval most = {.tv_usec = 200000};
            OK(setsockopt(ends[0], SOL_SOCKET, sends ? SO_SNDTIMEO : SO_RCVTIMEO, &most, sizeof most));
            pid_t child = slow(ends[0], ends[1], !sends);
            OK(close(ends[1]));
            evict(memory, BYTES);
            struct iovec part = {memory, BYTES};
            struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
            long n = sends ? message ? sendmsg(ends[0], &header, MSG_NOSIGNAL) : send(ends[0], memory, BYTES, MSG_NOSIGNAL)
                     : message ? recvmsg(ends[0], &header, MSG_WAITALL) : recv(ends[0], memory, BYTES, MSG_WAITALL);
            CHECK(n > 0 && n < BYTES);
            OK(close(ends[0]));
            expect_exit(child, 0);
        }
    }
    puts("ok");
    return 0;
}
