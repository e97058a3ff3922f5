/* SO_SNDTIMEO and SO_RCVTIMEO are for the whole of a call, however long it is: that is, for what it waits. */
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

/* Calls that do not wait, and those for which there is all the time: nothing is left out. */
static void at_once(char *memory) {
    enum { FEW = 1 << 20 };
    int ends[2];
    connection(ends);
    struct timeval most = {.tv_sec = 60};
    OK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most));
    OK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most));
    pid_t child = CHILD({
        static char piece[PIECE_BYTES];
        close(ends[0]);
        for (long n = 0, all = 0; all < BYTES; all += n) CHECK((n = recv(ends[1], piece, sizeof piece, 0)) > 0);
    });
    evict(memory, BYTES);
    EQ(send(ends[0], memory, BYTES, MSG_NOSIGNAL), BYTES);
    expect_exit(child, 0);
    OK(close(ends[0]) | close(ends[1]));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    int large = FEW;
    OK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &large, sizeof large));
    most = (struct timeval){.tv_usec = 1000};
    OK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most));
    long queued = send(ends[1], memory, FEW, MSG_DONTWAIT), got = 0, n;
    CHECK(queued > 0);
    evict(memory, BYTES);
    while ((n = recv(ends[0], memory, BYTES, MSG_DONTWAIT)) > 0) got += n;
    EQ(got, queued), EQ(errno, EAGAIN);
    OK(close(ends[0]) | close(ends[1]));
}

int main(void) {
    char *memory = fresh(BYTES / PAGE);
    memset(memory, 7, BYTES);
    for (int sends = 0; sends < 2; sends++) {
        for (int message = 0; message < 2; message++) {
            int ends[2];
            /* Each piece that is sent to a socket of this machine may wait so long. */
            if (!sends && message) OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
            else connection(ends);
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
    at_once(memory);
    puts("ok");
    return 0;
}
