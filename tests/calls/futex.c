/* futex: directly, and under mutexes, condition variables, semaphores, barriers, rwlocks and robust mutexes that
 * lie in
 * memory that is evicted again and again. */
#include "common.h"
#include <linux/futex.h>
#include <semaphore.h>

static long futex(uint32_t *p, int op, uint32_t value, const struct timespec *t, uint32_t *q, uint32_t v3) {
    return syscall(SYS_futex, p, op, value, t, q, v3);
}
static uint32_t *word;
/* Whoever waits keeps the page in. */
static void *waker(void *arg) {
    (void)arg;
    usleep(20000);
    evict_some(word, 4);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    evict_some(word, 4);
    while (futex(word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0) usleep(1000);
    return NULL;
}
static void direct(void) {
    word = OLD(uint32_t);
    expect_errno(futex(word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0), EAGAIN);
    *word = 0;
    evict(word, 4);
    expect_errno(futex(word, FUTEX_WAIT_PRIVATE, 0, ARG(struct timespec, 0, 1000000), NULL, 0), ETIMEDOUT);
    expect_errno(futex(word, FUTEX_WAIT, 0, ARG(struct timespec, 0, 1000000), NULL, 0), ETIMEDOUT);
    uint32_t *untouched = OUT(uint32_t);
    expect_errno(futex(untouched, FUTEX_WAIT_PRIVATE, 7, NULL, NULL, 0), EAGAIN);
    EQ(futex(OUT(uint32_t), FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
    pthread_t t;
    OK(pthread_create(&t, NULL, waker, NULL));
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) {
        evict_some(word, 4);
        futex(word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    futex(word, FUTEX_WAIT_PRIVATE, 1, ARG(struct timespec, 0, 100000000), NULL, 0);
    OK(pthread_join(t, NULL));
    EQ(*word, 1);
    uint32_t *other = OLD(uint32_t);
    evict(word, 4);
    EQ(syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1L, other, 1), 0);
    evict(word, 4), evict(other, 4);
    expect_errno(syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1L, other, 9), EAGAIN);
    evict(word, 4), evict(other, 4);
    /* Adds one to the second word. */
    EQ(futex(word, FUTEX_WAKE_OP_PRIVATE, 1, NULL, other, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)), 0);
    EQ(*other, 0xa5a5a5a6);
    EFAULT_IN(p, futex(p, FUTEX_WAIT, 0, NULL, NULL, 0));
    EFAULT_IN(p, futex(p, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    EFAULT_IN(p, futex(word, FUTEX_WAIT_PRIVATE, 1, p, NULL, 0));
    expect_errno(futex((uint32_t *)((char *)word + 1), FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EINVAL);
    expect_errno(futex(word, 120, 0, NULL, NULL, 0), ENOSYS);
}

struct shared {
    pthread_mutex_t mutex;
    char gap1[PAGE];
    pthread_cond_t condition;
    char gap2[PAGE];
    sem_t semaphore;
    char gap3[PAGE];
    pthread_rwlock_t rwlock;
    char gap4[PAGE];
    pthread_barrier_t barrier;
    char gap5[PAGE];
    pthread_mutex_t robust;
    pthread_mutex_t inherit;
    long count, turn;
};
static struct shared *s;
enum { THREADS = 4, ROUNDS = 200 };
/* The same for who waits for locks, and for robust locks that are held. */
static void *worker(void *arg) {
    long me = (long)arg;
    for (long i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        long seen = s->count;
        evict_some(s, sizeof *s);
        s->count = seen + 1;
        OK(pthread_mutex_unlock(&s->mutex));
        OK(pthread_mutex_lock(&s->inherit)), OK(pthread_mutex_unlock(&s->inherit));
        OK(sem_wait(&s->semaphore)), evict_some(&s->semaphore, 1), OK(sem_post(&s->semaphore));
        OK(i % 8 ? pthread_rwlock_rdlock(&s->rwlock) : pthread_rwlock_wrlock(&s->rwlock));
        OK(pthread_rwlock_unlock(&s->rwlock));
    }
    pthread_barrier_wait(&s->barrier);
    /* Takes turns, so that every wake-up matters. */
    for (long i = 0; i < 50; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (s->turn % THREADS != me) OK(pthread_cond_wait(&s->condition, &s->mutex));
        s->turn++;
        if (i % 10 == 0) evict_some(s, sizeof *s);
        OK(pthread_cond_broadcast(&s->condition));
        OK(pthread_mutex_unlock(&s->mutex));
    }
    return NULL;
}
static void *dies_holding(void *arg) {
    (void)arg;
    OK(pthread_mutex_lock(&s->robust));
    evict_some(&s->robust, 1);
    return NULL;
}
int main(void) {
    tmpdir();
    direct();
    s = place(sizeof *s, 16);
    pthread_mutexattr_t robust, inherit;
    pthread_mutexattr_init(&robust), pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_init(&inherit), pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
    OK(pthread_mutex_init(&s->mutex, NULL)), OK(pthread_cond_init(&s->condition, NULL));
    OK(pthread_mutex_init(&s->robust, &robust)), OK(pthread_mutex_init(&s->inherit, &inherit));
    OK(sem_init(&s->semaphore, 0, 2)), OK(pthread_rwlock_init(&s->rwlock, NULL));
    OK(pthread_barrier_init(&s->barrier, NULL, THREADS));
    evict(s, sizeof *s);
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) OK(pthread_create(t + i, NULL, worker, (void *)i));
    for (int i = 0; i < THREADS; i++) OK(pthread_join(t[i], NULL));
    EQ(s->count, THREADS * ROUNDS), EQ(s->turn, THREADS * 50);
    int value;
    OK(sem_getvalue(&s->semaphore, &value)), EQ(value, 2);
    OK(pthread_create(t, NULL, dies_holding, NULL)), OK(pthread_join(*t, NULL));
    evict_some(s, sizeof *s);
    EQ(pthread_mutex_lock(&s->robust), EOWNERDEAD), OK(pthread_mutex_consistent(&s->robust));
    OK(pthread_mutex_unlock(&s->robust)), OK(pthread_mutex_lock(&s->robust)), OK(pthread_mutex_unlock(&s->robust));
    struct timespec *until = OUT(struct timespec);
    clock_gettime(CLOCK_REALTIME, until), evict(until, sizeof *until);
    OK(pthread_mutex_lock(&s->mutex));
    EQ(pthread_cond_timedwait(&s->condition, &s->mutex, until), ETIMEDOUT);
    OK(sem_wait(&s->semaphore)), OK(sem_wait(&s->semaphore)), evict_some(s, sizeof *s), evict(until, sizeof *until);
    expect_errno(sem_timedwait(&s->semaphore, until), ETIMEDOUT);
    expect_errno(sem_trywait(&s->semaphore), EAGAIN);
    puts("ok");
    return 0;
}
