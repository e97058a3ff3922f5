/* Locks in shared anonymous memory: of threads, across a fork, and between processes. */
#include "common.h"
#include <linux/futex.h>
#include <semaphore.h>

static void *shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("cannot map: errno %d", errno);
    return p;
}
struct locks {
    sem_t first;
    char gap1[PAGE];
    sem_t second;
    char gap2[PAGE];
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    char gap3[PAGE];
    pthread_mutex_t robust;
    char gap4[PAGE];
    uint32_t word, other;
    int turn;
};
static struct locks *s;

/* Waits before the fork; the child wakes it. */
static void *waits(void *arg) {
    (void)arg;
    OK(sem_wait(&s->first));
    return NULL;
}
static void *waits_privately(void *arg) {
    (void)arg;
    while (__atomic_load_n(&s->word, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &s->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return NULL;
}
static void *waits_for_all(void *arg) {
    (void)arg;
    while (__atomic_load_n(&s->other, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &s->other, FUTEX_WAIT, 0, NULL, NULL, 0);
    __atomic_store_n(&s->turn, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void across(void) {
    s = shared(sizeof *s);
    OK(sem_init(&s->first, 1, 0)), OK(sem_init(&s->second, 1, 0));
    evict(s, sizeof *s);
    pthread_t t[3];
    OK(pthread_create(t, NULL, waits, NULL)), OK(pthread_create(t + 1, NULL, waits_privately, NULL));
    OK(pthread_create(t + 2, NULL, waits_for_all, NULL));
    usleep(50000);
    pid_t child = CHILD({
        OK(sem_post(&s->first));
        __atomic_store_n(&s->other, 1, __ATOMIC_SEQ_CST);
        /* On a busy machine it may find that it need not wait. */
        while (syscall(SYS_futex, &s->other, FUTEX_WAKE, 1, NULL, NULL, 0) != 1 && !__atomic_load_n(&s->turn, __ATOMIC_SEQ_CST)) usleep(1000);
        OK(sem_wait(&s->second));
    });
    OK(pthread_join(t[0], NULL)), OK(pthread_join(t[2], NULL));
    __atomic_store_n(&s->word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &s->word, FUTEX_WAKE_PRIVATE, 9, NULL, NULL, 0);
    OK(pthread_join(t[1], NULL));
    OK(sem_post(&s->second));
    expect_exit(child, 0);
    OK(munmap(s, sizeof *s));
}

/* Parent and child take turns, under a mutex and a condition. */
static void turns(int me) {
    for (int i = 0; i < 200; i++) {
        OK(pthread_mutex_lock(&s->mutex));
        while (s->turn % 2 != me) OK(pthread_cond_wait(&s->condition, &s->mutex));
        s->turn++;
        OK(pthread_cond_broadcast(&s->condition));
        OK(pthread_mutex_unlock(&s->mutex));
    }
}
static void between(void) {
    s = shared(sizeof *s);
    pthread_mutexattr_t attr;
    pthread_condattr_t cond;
    pthread_mutexattr_init(&attr), pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&cond), pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    OK(pthread_mutex_init(&s->mutex, &attr)), OK(pthread_cond_init(&s->condition, &cond));
    evict(s, sizeof *s);
    OK(pthread_mutex_lock(&s->mutex));
    pid_t child = CHILD(turns(1));
    OK(pthread_mutex_unlock(&s->mutex));
    turns(0);
    expect_exit(child, 0);
    EQ(s->turn, 400);
    OK(munmap(s, sizeof *s));
}

/* A child dies with a robust lock held. */
static void robust(void) {
    s = shared(sizeof *s);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr), pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    OK(pthread_mutex_init(&s->robust, &attr));
    evict_some(s, sizeof *s);
    expect_exit(CHILD(OK(pthread_mutex_lock(&s->robust))), 0);
    EQ(pthread_mutex_lock(&s->robust), EOWNERDEAD), OK(pthread_mutex_consistent(&s->robust));
    OK(pthread_mutex_unlock(&s->robust));
    OK(munmap(s, sizeof *s));
}

/* The rest of the calls on a word that other processes may use. */
static void calls(void) {
    s = shared(sizeof *s);
    memset(s, 0, sizeof *s), evict(s, sizeof *s);
    expect_errno(syscall(SYS_futex, &s->word, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
    EQ(syscall(SYS_futex, &s->word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
    struct timespec soon = {0, 1000000};
    expect_errno(syscall(SYS_futex, &s->word, FUTEX_WAIT, 0, &soon, NULL, 0), ETIMEDOUT);
    EQ(syscall(SYS_futex, &s->word, FUTEX_CMP_REQUEUE, 1, 1L, &s->other, 0), 0);
    EQ(syscall(SYS_futex, &s->word, FUTEX_WAKE_OP, 1, NULL, &s->other, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)), 0);
    EQ(s->other, 1);
    OK(syscall(SYS_futex, &s->word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    OK(syscall(SYS_futex, &s->word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    OK(munmap(s, sizeof *s));
}

int main(void) {
    tmpdir();
    for (int i = 0; i < 3; i++) across(), between(), robust(), calls();
    puts("ok");
    return 0;
}
