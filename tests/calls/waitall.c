/* MSG_WAITALL for more than there is room for: all of it comes, in one call, and the limit holds (it is looked at from
 * outside). A message that ends early, a signal, the other side's end cut it as they do plainly. */
#include "common.h"
#include <sys/ioctl.h>

enum { BYTES = 80 << 20, PART = 64 << 10 };
static int ends[2];
static char *area;
static size_t to_send;

static void *sends(void *arg) {
    static char part[PART];
    for (size_t at = 0; at < to_send; at += PART) {
        noise(part, PART, at);
        write_all(ends[1], part, PART);
    }
    if (arg) OK(shutdown(ends[1], SHUT_WR));
    return NULL;
}
static void begin(pthread_t *t, size_t n, void *close_after) {
    to_send = n;
    OK(pthread_create(t, NULL, sends, close_after));
}
static void verify(size_t from, size_t n) {
    for (size_t at = 0; at + PART <= n; at += PART) check_noise(area + from + at, PART, at);
}
static volatile int done;
static pthread_t receiver;
static void handler(int s) { (void)s; }
/* Once all that was sent has been taken. */
static void *interrupts(void *sender) {
    OK(pthread_join(*(pthread_t *)sender, NULL));
    for (int waiting = 1; waiting;) OK(ioctl(ends[0], FIONREAD, &waiting)), sleep_ms(20);
    while (!done) OK(pthread_kill(receiver, SIGUSR1)), sleep_ms(50);
    return NULL;
}
int main(void) {
    tmpdir();
    area = fresh(BYTES / PAGE + 1);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t t;
    begin(&t, BYTES, NULL);
    EQ(recv(ends[0], area + 8, BYTES, MSG_WAITALL), BYTES);
    OK(pthread_join(t, NULL)), verify(8, BYTES);

    begin(&t, BYTES, NULL);
    struct iovec io = {area + 16, BYTES};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    EQ(recvmsg(ends[0], &m, MSG_WAITALL), BYTES);
    OK(pthread_join(t, NULL)), verify(16, BYTES);

    /* Three buffers, none of which ends at a page. */
    begin(&t, BYTES, NULL);
    struct iovec three[3] = {{area + 24, 1000}, {area + 24 + 1000, BYTES / 2 - 1000}, {area + 24 + BYTES / 2, BYTES / 2}};
    m = (struct msghdr){.msg_iov = three, .msg_iovlen = 3};
    EQ(recvmsg(ends[0], &m, MSG_WAITALL), BYTES);
    OK(pthread_join(t, NULL)), verify(24, BYTES);

    /* A signal after a part of it. */
    struct sigaction a = {.sa_handler = handler};
    OK(sigaction(SIGUSR1, &a, NULL));
    pthread_t other;
    receiver = pthread_self();
    begin(&t, 4 << 20, NULL);
    OK(pthread_create(&other, NULL, interrupts, &t));
    EQ(recv(ends[0], area, BYTES, MSG_WAITALL), 4 << 20);
    done = 1;
    OK(pthread_join(other, NULL)), verify(0, 4 << 20);

    /* Only what is there. */
    begin(&t, PART, NULL), OK(pthread_join(t, NULL));
    EQ(recv(ends[0], area, BYTES, MSG_WAITALL | MSG_DONTWAIT), PART);
    /* The end of the other side. */
    begin(&t, 8 << 20, area);
    EQ(recv(ends[0], area, BYTES, MSG_WAITALL), 8 << 20);
    OK(pthread_join(t, NULL)), verify(0, 8 << 20);
    EQ(recv(ends[0], area, BYTES, MSG_WAITALL), 0);
    puts("ok");
    return 0;
}
