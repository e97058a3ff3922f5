/* A thread waits in one call for buffers that lie far apart, others work on all that lies between. What it holds in memory is
 * its buffers, not the distance: the limit is looked at from outside. */
#include "common.h"

enum { BYTES = 96 << 20, BUFFERS = 16 };
static char *area;
static int ends[2], calls;

static struct iovec *buffers(void) {
    struct iovec *v = (struct iovec *)place(BUFFERS * sizeof *v, 16);
    for (int i = 0; i < BUFFERS; i++) v[i] = (struct iovec){area + (size_t)BYTES / BUFFERS * i + 128, 64};
    evict(v, BUFFERS * sizeof *v);
    return v;
}
static void *waits(void *nothing) {
    struct iovec *v = buffers();
    struct msghdr *m = ARG(struct msghdr, .msg_iov = v, .msg_iovlen = BUFFERS);
    if (calls == 0)
        EQ(readv(ends[0], v, BUFFERS), BUFFERS * 64);
    else
        EQ(recvmsg(ends[0], m, 0), BUFFERS * 64);
    return nothing;
}
int main(void) {
    tmpdir();
    area = fresh(BYTES / PAGE);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (calls = 0; calls < 2; calls++) {
        pthread_t t;
        OK(pthread_create(&t, NULL, waits, NULL));
        sleep_ms(200);
        for (int turn = 0; turn < 2; turn++) {
            for (size_t i = 0; i < BYTES; i += PAGE) *(size_t *)(area + i) = i + turn;
            for (size_t i = 0; i < BYTES; i += PAGE) EQ(*(volatile size_t *)(area + i), i + turn);
        }
        char bytes[BUFFERS * 64];
        fill(bytes, sizeof bytes, calls);
        EQ(write(ends[1], bytes, sizeof bytes), sizeof bytes);
        OK(pthread_join(t, NULL));
        for (int i = 0; i < BUFFERS; i++)
            check_from(area + (size_t)BYTES / BUFFERS * i + 128, 64, calls, i * 64);
    }
    puts("ok");
    return 0;
}
