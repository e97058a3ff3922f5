/* Real-time threads that need a page which an ordinary thread on the same processor is about to bring in, or a turn that it
 * has: they wait, and do not keep it from running. Without the right to be real-time, ordinary threads do the same. */
#include "common.h"

enum { PAGES = (40 << 20) / PAGE, ORDINARY = 3, TURNS = 4000 };
static char *area;
static volatile int stop;
static volatile unsigned long turns[ORDINARY];

static void pin(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
}
static void *ordinary(void *arg) {
    pin();
    uint64_t x = (long)arg + 5;
    while (!stop) {
        size_t i = next_random(&x) % PAGES;
        EQ(*(volatile size_t *)(area + i * PAGE), i);
        turns[(long)arg]++;
    }
    return NULL;
}
static void *real_time(void *arg) {
    pin();
    struct sched_param p = {.sched_priority = 5};
    if (pthread_setschedparam(pthread_self(), arg ? SCHED_RR : SCHED_FIFO, &p)) CHECK(errno == 0 || errno == EPERM);
    uint64_t x = 99;
    for (int i = 0; i < TURNS; i++) {
        size_t at = next_random(&x) % PAGES;
        EQ(*(volatile size_t *)(area + at * PAGE), at);
        /* Lets the others begin with something. */
        if (i % 4 == 0) usleep(100);
        if (i % 64 == 0) evict(area + at * PAGE, 64 * PAGE < (PAGES - at) * PAGE ? 64 * PAGE : PAGE);
        if (i % 1000 == 0) expect_exit(CHILD({ EQ(*(volatile size_t *)(area + at * PAGE), at); }), 0);
    }
    return NULL;
}
int main(void) {
    tmpdir();
    area = fresh(PAGES);
    for (size_t i = 0; i < PAGES; i++) *(size_t *)(area + i * PAGE) = i;
    pthread_t t[ORDINARY], first;
    for (long i = 0; i < ORDINARY; i++) OK(pthread_create(t + i, NULL, ordinary, (void *)i));
    for (long i = 0; i < 2; i++)
        OK(pthread_create(&first, NULL, real_time, (void *)i)), OK(pthread_join(first, NULL));
    stop = 1;
    for (int i = 0; i < ORDINARY; i++) OK(pthread_join(t[i], NULL)), CHECK(turns[i] > 0);
    puts("ok");
    return 0;
}
