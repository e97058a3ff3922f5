/* Messages of sockets are whole, in however many buffers they are and however long the call says that these are. */
#include "common.h"

/* More than the half that a call may have resident. */
enum { BIG = 20 * MIB };

int main(void) {
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    char *head = fresh(1), *big = fresh(BIG / PAGE), message[5000];
    fill(big, BIG, 5);
    fill(message, sizeof message, 3);
    struct iovec parts[2] = {{head, 16}, {big, BIG}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    for (int way = 0; way < 3; way++) {
        evict(big, BIG);
        EQ(send(pair[1], message, sizeof message, 0), sizeof message);
        ssize_t got = way == 0 ? readv(pair[0], parts, 2) : way == 1 ? recvmsg(pair[0], &header, 0) : recv(pair[0], big, BIG, 0);
        EQ(got, sizeof message);
        if (way < 2) {
            check(head, 16, 3);
            check_from(big, sizeof message - 16, 3, 16);
        } else
            check(big, sizeof message, 3);
    }
    /* What is too long is refused as it is, not sent in part. */
    EQ(writev(pair[1], parts, 2), -1);
    EQ(errno, EMSGSIZE);
    EQ(sendmsg(pair[1], &header, 0), -1);
    EQ(errno, EMSGSIZE);
    EQ(write(pair[1], big, 4 * MIB), -1);
    EQ(errno, EMSGSIZE);
    EQ(recv(pair[0], head, 16, MSG_DONTWAIT), -1);
    EQ(errno, EAGAIN);
    puts("ok");
    return 0;
}
