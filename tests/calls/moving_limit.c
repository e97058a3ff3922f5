/* Transfers between files and memory while another process takes room and gives it back, and forks have all wait: how much may be
 * resident changes all the time, and no transfer is ever cut short. */
#include "common.h"
#include <sys/prctl.h>

enum { PAGES = 240, DATAGRAM = 150000, VECTORS = 12, OTHER = (12 << 20) / PAGE, TAKEN = (30 << 20) / PAGE };
static volatile int done;

/* Memory that comes and goes. */
static void *churns(void *arg) {
    char *p = fresh(OTHER);
    for (unsigned round = 0; !done; round++)
        for (size_t i = 0; i < OTHER && !done; i++) {
            size_t at = i * 7919 % OTHER;
            *(volatile size_t *)(p + at * PAGE) = at + round;
        }
    OK(munmap(p, OTHER * PAGE));
    return arg;
}
/* Each of them halves what this process counts for, and has all others wait meanwhile. */
static void *forks(void *arg) {
    while (!done) expect_exit(CHILD(sleep_ms(1)), 0);
    return arg;
}
static void takes_and_gives(void) {
    OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
    for (;;) {
        char *p = fresh(TAKEN);
        for (size_t i = 0; i < TAKEN; i++) *(volatile size_t *)(p + i * PAGE) = i;
        OK(munmap(p, TAKEN * PAGE));
    }
}
int main(void) {
    tmpdir();
    pid_t other = CHILD(takes_and_gives());
    pthread_t t[2];
    OK(pthread_create(t, NULL, churns, NULL)), OK(pthread_create(t + 1, NULL, forks, NULL));
    char *p = fresh(PAGES);
    fill(p, PAGES * PAGE, 1);
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0);
    struct iovec v[VECTORS];
    int ends[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    int64_t until = now_ns() + 3000000000;
    for (unsigned round = 0; now_ns() < until; round++) {
        size_t part = (1 + round * 17 % (PAGES / VECTORS)) * PAGE, n = part * VECTORS;
        for (int i = 0; i < VECTORS; i++) v[i] = (struct iovec){p + i * part, part};
        EQ(pwritev(fd, v, VECTORS, 0), n), EQ(preadv(fd, v, VECTORS, 0), n);
        EQ(pwrite(fd, p, n, 0), n), EQ(pread(fd, p, n, 0), n);
        /* Also messages, which come whole or not at all. */
        EQ(write(ends[0], p, DATAGRAM), DATAGRAM), EQ(recv(ends[1], p, PAGES * PAGE, 0), DATAGRAM);
        v[0] = (struct iovec){p, 50000}, v[1] = (struct iovec){p + 50000, DATAGRAM - 50000};
        EQ(writev(ends[0], v, 2), DATAGRAM), EQ(readv(ends[1], v, 2), DATAGRAM);
        if (round % 16 == 0) check(p, PAGES * PAGE, 1), evict(p, PAGES * PAGE);
    }
    done = 1;
    OK(pthread_join(t[0], NULL)), OK(pthread_join(t[1], NULL));
    OK(kill(other, SIGKILL)), expect_signal(other, SIGKILL);
    check(p, PAGES * PAGE, 1);
    puts("ok");
    return 0;
}
