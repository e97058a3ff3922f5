/* Many threads on the same evicted memory: some check what never changes, some write their own bytes of shared pages,
 * some evict, some pass buffers around under a mutex and a condition variable. More memory than a small budget. */
#include "common.h"

enum { PAGES = 8192, THREADS = 8, ROUNDS = 3, ITEMS = 400, SLOTS = 8 };
static char *fixed, *mixed;
static void *hammer(void *arg) {
    size_t me = (size_t)arg;
    uint64_t x = me * 7919 + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 1500; i++) {
            x = x * 6364136223846793005UL + 1442695040888963407UL;
            size_t page = (x >> 33) % PAGES;
            /* A whole page each time: a half-installed page would show. */
            check_from(fixed + page * PAGE, PAGE, 3, page * PAGE);
            volatile unsigned char *own = (unsigned char *)mixed + page % 512 * PAGE + me;
            *own = *own + 1;
            if (i % 64 == 0) evict(fixed + page * PAGE, 64 * PAGE < (PAGES - page) * PAGE ? 64 * PAGE : PAGE);
            if (i % 128 == 0) evict(mixed, 512 * PAGE);
        }
    }
    return NULL;
}
struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t more, less;
    int head, tail;
    char *slots[SLOTS];
} *q;
static void *produce(void *arg) {
    for (unsigned i = 0; i < ITEMS; i++) {
        char *p = heap(20000);
        fill(p, 20000, i), evict(p, 20000);
        OK(pthread_mutex_lock(&q->mutex));
        while (q->head - q->tail == SLOTS) OK(pthread_cond_wait(&q->less, &q->mutex));
        q->slots[q->head++ % SLOTS] = p;
        if (i % 16 == 0) evict_some(q, sizeof *q); /* others wait there */
        OK(pthread_cond_signal(&q->more)), OK(pthread_mutex_unlock(&q->mutex));
    }
    return arg;
}
static void *consume(void *arg) {
    for (unsigned i = 0; i < ITEMS; i++) {
        OK(pthread_mutex_lock(&q->mutex));
        while (q->head == q->tail) OK(pthread_cond_wait(&q->more, &q->mutex));
        char *p = q->slots[q->tail++ % SLOTS];
        OK(pthread_cond_signal(&q->less)), OK(pthread_mutex_unlock(&q->mutex));
        check(p, 20000, i), free(p);
    }
    return arg;
}
int main(void) {
    tmpdir();
    pthread_t t[THREADS], two[2];
    fixed = fresh(PAGES), mixed = fresh(512), q = (struct queue *)heap(sizeof *q);
    fill(fixed, PAGES * PAGE, 3);
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->mutex, NULL), pthread_cond_init(&q->more, NULL), pthread_cond_init(&q->less, NULL);
    for (size_t i = 0; i < THREADS; i++) OK(pthread_create(t + i, NULL, hammer, (void *)i));
    OK(pthread_create(two, NULL, produce, NULL)), OK(pthread_create(two + 1, NULL, consume, NULL));
    for (int i = 0; i < THREADS; i++) OK(pthread_join(t[i], NULL));
    OK(pthread_join(two[0], NULL)), OK(pthread_join(two[1], NULL));
    /* Each thread's counts, byte by byte, from the same random numbers. */
    static unsigned char want[512][THREADS];
    for (size_t me = 0; me < THREADS; me++) {
        uint64_t x = me * 7919 + 1;
        for (int i = 0; i < ROUNDS * 1500; i++) {
            x = x * 6364136223846793005UL + 1442695040888963407UL;
            want[(x >> 33) % PAGES % 512][me]++;
        }
    }
    for (size_t i = 0; i < 512; i++) {
        OK(memcmp(mixed + i * PAGE, want[i], THREADS));
        check_zero(mixed + i * PAGE + THREADS, PAGE - THREADS);
    }
    check(fixed, PAGES * PAGE, 3);
    puts("ok");
    return 0;
}
