/* siglongjmp out of handlers that interrupted calls on evicted memory, thousands of times: calls go on working, and what they
 * had in memory can be evicted again. */
#include "common.h"
#include <setjmp.h>

enum { JUMPS = 6000, PAGES = (24 << 20) / PAGE };
static sigjmp_buf jump;
static volatile sig_atomic_t armed;
static volatile int jumps;
static char *area;
static int ends[2];

static void handler(int s) {
    (void)s;
    if (!armed) return;
    armed = 0, jumps++;
    siglongjmp(jump, 1);
}
static void *interrupts(void *main_thread) {
    sigset_t all;
    sigfillset(&all), OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    while (jumps < JUMPS)
        if (armed) {
            usleep(20);
            OK(pthread_kill(*(pthread_t *)main_thread, SIGUSR1));
        } else
            sched_yield();
    return NULL;
}
int main(void) {
    tmpdir();
    area = fresh(PAGES);
    for (size_t i = 0; i < PAGES; i++) *(size_t *)(area + i * PAGE) = i;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct sigaction a = {.sa_handler = handler};
    OK(sigaction(SIGUSR1, &a, NULL));
    pthread_t self = pthread_self(), t;
    OK(pthread_create(&t, NULL, interrupts, &self));
    static volatile int round;
    for (round = 0; jumps < JUMPS; round++) {
        /* Another part of memory each time. */
        char *p = area + (size_t)round % (PAGES / 4) * 4 * PAGE + 64;
        if (!sigsetjmp(jump, 1)) {
            struct iovec v[2] = {{p, 100}, {p + PAGE, 200}};
            struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
            armed = 1;
            if (round % 3 == 0)
                (void)!read(ends[0], p, 5000);
            else if (round % 3 == 1)
                (void)!readv(ends[0], v, 2);
            else
                recvmsg(ends[0], &m, 0);
            armed = 0;
        }
    }
    OK(pthread_join(t, NULL));
    /* Nothing was received, nothing was lost; calls have room, memory gives way. */
    pressure(40);
    for (size_t i = 0; i < PAGES; i++) EQ(*(size_t *)(area + i * PAGE), i);
    char *p = fresh(16);
    fill(p, 16 * PAGE, 3), evict(p, 16 * PAGE);
    for (int i = 0; i < 100; i++) {
        EQ(write(ends[1], p, 16 * PAGE), 16 * PAGE);
        EQ(recv(ends[0], area, 16 * PAGE, MSG_WAITALL), 16 * PAGE), check(area, 16 * PAGE, 3);
        evict(p, 16 * PAGE), evict(area, 16 * PAGE);
    }
    expect_exit(CHILD({ check(p, 16 * PAGE, 3); }), 0);
    puts("ok");
    return 0;
}
