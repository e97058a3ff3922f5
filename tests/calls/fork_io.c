/* Forks while other threads move much data: files in pieces, messages of many megabytes that are waited for. */
#include "common.h"

enum { BYTES = 4 << 20, FORKS = 40 };
static volatile int stop;
static char *area, *inbox, *outbox;
static int file, ends[2];

static void *reads_file(void *arg) {
    char *p = fresh(BYTES / PAGE);
    for (int i = 0; !stop; i++) {
        EQ(pread(file, p, BYTES, 0), BYTES);
        if (i % 8 == 0) check_noise(p, BYTES, 1);
        evict(p, BYTES);
    }
    return arg;
}
static void *writes_file(void *arg) {
    int mine = open("written", O_CREAT | O_RDWR, 0600);
    CHECK(mine >= 0);
    while (!stop) EQ(pwrite(mine, area, BYTES, 0), BYTES);
    char *p = fresh(BYTES / PAGE);
    struct iovec two[2] = {{p, BYTES / 2}, {p + BYTES / 2, BYTES / 2}};
    EQ(preadv(mine, two, 2, 0), BYTES);
    check_noise(p, BYTES, 1);
    close(mine);
    return arg;
}
/* Waits nearly always: the other side sends little, at the end the rest. */
static void *receives(void *arg) {
    size_t got = 0;
    while (got < BYTES) {
        struct iovec io = {inbox + got, BYTES - got};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
        ssize_t r = recvmsg(ends[0], &m, 0);
        CHECK(r > 0);
        got += r;
    }
    return arg;
}
static void send_part(size_t from, size_t n) {
    while (n) {
        struct iovec io = {outbox + from, n};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
        ssize_t r = sendmsg(ends[1], &m, 0);
        CHECK(r > 0);
        from += r, n -= r;
    }
}
int main(void) {
    tmpdir();
    area = fresh(BYTES / PAGE), inbox = fresh(BYTES / PAGE), outbox = fresh(BYTES / PAGE);
    noise(area, BYTES, 1), noise(outbox, BYTES, 2);
    file = open("file", O_CREAT | O_RDWR, 0600);
    CHECK(file >= 0);
    EQ(pwrite(file, area, BYTES, 0), BYTES);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t t[3];
    OK(pthread_create(t, NULL, reads_file, NULL)), OK(pthread_create(t + 1, NULL, writes_file, NULL));
    OK(pthread_create(t + 2, NULL, receives, NULL));
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = CHILD({
            if (i % 8 == 0) check_noise(area, BYTES, 1), evict(area, BYTES), check_noise(area, BYTES, 1);
        });
        send_part(i * 1000, 1000);
        expect_exit(pid, 0);
    }
    send_part(FORKS * 1000, BYTES - FORKS * 1000);
    stop = 1;
    for (int i = 0; i < 3; i++) OK(pthread_join(t[i], NULL));
    check_noise(inbox, BYTES, 2), check_noise(area, BYTES, 1);
    puts("ok");
    return 0;
}
