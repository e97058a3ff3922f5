/* A thread that has a processor to itself, by a real-time policy, keeps nobody waiting who has another: a child that shares the memory
 * gets what is evicted, whoever used memory first or changed its rights last. (Without the right to such a policy, or with one
 * processor, the thread only polls.) */
#include "common.h"

enum { AREA = 24 << 20, POLLS_S = 10, LATE_S = 8 };
static char *area;
static cpu_set_t all;
static volatile int ready, is_done;

static void keep_to(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
}
static int processor(int is_last) {
    int found = -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && (is_last || found < 0)) found = i;
    return found;
}
static void become_real_time(void) {
    struct sched_param priority = {10};
    if (sched_setscheduler(0, SCHED_FIFO, &priority)) EQ(errno, EPERM);
}
static void *polls(void *is_before) {
    keep_to(processor(1));
    if (is_before) become_real_time();
    /* Memory is used, and rights are what they were. */
    char *p = fresh(2048);
    for (int i = 0; i < 2048; i++) p[i * PAGE] = 1;
    EQ(syscall(SYS_setfsuid, geteuid()), geteuid());
    if (!is_before) become_real_time();
    ready = 1;
    for (int64_t end = now_ns() + POLLS_S * 1000000000L; !is_done && now_ns() < end;) {
    }
    OK(munmap(p, 2048 * PAGE));
    return NULL;
}
static void beside(int is_before) {
    pthread_t t;
    ready = is_done = 0;
    evict(area, AREA);
    OK(pthread_create(&t, NULL, polls, is_before ? area : NULL));
    while (!ready) sleep_ms(1);
    evict(area, 4 * MIB);
    int64_t begun = now_ns();
    pid_t child = vfork();
    if (child == 0) {
        for (size_t i = 0; i < 4 * MIB; i += 32 * PAGE)
            if (((volatile uint64_t *)(area + i))[0] != ((volatile uint64_t *)(area + i))[1] + i) _exit(1);
        _exit(0);
    }
    CHECK(child > 0), expect_exit(child, 0);
    int64_t took = now_ns() - begun;
    is_done = 1;
    OK(pthread_join(t, NULL));
    if (took >= LATE_S * 1000000000L) die("the child ended after %ld ms, before %d", (long)(took / 1000000), is_before);
}
int main(void) {
    OK(sched_getaffinity(0, sizeof all, &all));
    area = fresh(AREA / PAGE), noise(area, AREA, 1);
    for (size_t i = 0; i < AREA; i += 32 * PAGE) ((uint64_t *)(area + i))[0] = ((uint64_t *)(area + i))[1] + i;
    keep_to(processor(0));
    beside(1), beside(0);
    OK(sched_setaffinity(0, sizeof all, &all));
    puts("ok");
    return 0;
}
