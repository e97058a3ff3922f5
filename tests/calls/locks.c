/* Locks, conditions, semaphores and barriers in memory that is there, and goes at any instant: the C library's calls for them are made without
 * a trap once there are threads. Handed on, interrupted by handlers that use others or never come back, cancelled at any instruction, seen by
 * who unwinds the stack; and masks of signals that `swapcontext` and threads change. */
#include "common.h"
#include <execinfo.h>
#include <semaphore.h>
#include <setjmp.h>
#include <ucontext.h>

enum { PAGES = 16, TURNED = 10240, THREADS = 6, ROUNDS = 1200 };
struct locks {
    pthread_mutex_t mutex, recursive;
    pthread_cond_t turn_came;
    pthread_rwlock_t shared;
    sem_t there, back, in_handler, never;
    pthread_barrier_t barrier;
    unsigned turn, count, word;
    unsigned long long pair[2];
};
static struct locks *l;
static char *area;
static volatile int stop;

/* Alarms are for the main thread. */
static void no_alarms(void) {
    sigset_t alarms;
    OK(sigemptyset(&alarms)), OK(sigaddset(&alarms, SIGALRM)), OK(pthread_sigmask(SIG_BLOCK, &alarms, NULL));
}
static void *turns_over(void *arg) {
    (void)arg;
    no_alarms();
    turn_over(&stop, TURNED, area, PAGES);
    return NULL;
}
static void make(void) {
    pthread_mutexattr_t a;
    OK(pthread_mutexattr_init(&a)), OK(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE));
    memset(l, 0, sizeof *l);
    OK(pthread_mutex_init(&l->mutex, NULL)), OK(pthread_mutex_init(&l->recursive, &a));
    OK(pthread_cond_init(&l->turn_came, NULL)), OK(pthread_rwlock_init(&l->shared, NULL));
    OK(sem_init(&l->there, 0, 0)), OK(sem_init(&l->back, 0, 0)), OK(sem_init(&l->in_handler, 0, 1)), OK(sem_init(&l->never, 0, 0));
    OK(pthread_barrier_init(&l->barrier, NULL, THREADS));
}

/* Each in its turn, and all of them at once. */
static void *takes_turns(void *arg) {
    unsigned me = (unsigned)(intptr_t)arg;
    for (unsigned round = 0; round < ROUNDS / THREADS; round++) {
        OK(pthread_mutex_lock(&l->mutex));
        while (l->turn % THREADS != me) OK(pthread_cond_wait(&l->turn_came, &l->mutex));
        l->turn++;
        OK(pthread_cond_broadcast(&l->turn_came)), OK(pthread_mutex_unlock(&l->mutex));
        OK(pthread_mutex_lock(&l->recursive)), OK(pthread_mutex_lock(&l->recursive));
        if (round % 64 == 0) sched_yield();
        l->count++;
        OK(pthread_mutex_unlock(&l->recursive)), OK(pthread_mutex_unlock(&l->recursive));
        if (round % 4 == 0) {
            OK(pthread_rwlock_wrlock(&l->shared));
            l->pair[0]++, sched_yield(), l->pair[1]++;
        } else {
            OK(pthread_rwlock_rdlock(&l->shared));
            CHECK(l->pair[0] == l->pair[1]);
        }
        OK(pthread_rwlock_unlock(&l->shared));
        int last = pthread_barrier_wait(&l->barrier);
        CHECK(last == 0 || last == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return NULL;
}
static void handed_on(void) {
    pthread_t t[THREADS];
    for (int n = 0; n < THREADS; n++) OK(pthread_create(&t[n], NULL, takes_turns, (void *)(intptr_t)n));
    for (int n = 0; n < THREADS; n++) OK(pthread_join(t[n], NULL));
    EQ(l->turn, ROUNDS / THREADS * THREADS), EQ(l->count, l->turn), EQ(l->pair[0], (ROUNDS / THREADS + 3) / 4 * THREADS);
}

/* Timeouts, values that are others, words that are nowhere. */
static struct timespec after(int clock, long ns) {
    struct timespec t;
    OK(clock_gettime(clock, &t));
    t.tv_nsec += ns, t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
    return t;
}
static void what_calls_say(void) {
    struct timespec *t = (struct timespec *)(area + 9 * PAGE - 8);
    for (int n = 0; n < 20; n++) {
        *t = after(CLOCK_REALTIME, 1000000), expect_errno(sem_timedwait(&l->never, t), ETIMEDOUT);
        *t = after(CLOCK_MONOTONIC, 1000000), expect_errno(sem_clockwait(&l->never, CLOCK_MONOTONIC, t), ETIMEDOUT);
        *t = after(CLOCK_REALTIME, 1000000);
        OK(pthread_mutex_lock(&l->mutex)), EQ(pthread_cond_timedwait(&l->turn_came, &l->mutex, t), ETIMEDOUT);
        OK(pthread_mutex_unlock(&l->mutex));
        l->word = n;
        expect_errno(syscall(SYS_futex, &l->word, 0, n + 1, NULL, NULL, 0), EAGAIN);
        *t = (struct timespec){0, 1000000}, expect_errno(syscall(SYS_futex, &l->word, 128, n, t, NULL, 0), ETIMEDOUT);
        *t = after(CLOCK_MONOTONIC, 1000000), expect_errno(syscall(SYS_futex, &l->word, 9 | 128, n, t, NULL, 4), ETIMEDOUT);
        expect_errno(syscall(SYS_futex, &l->word, 9 | 128, n, t, NULL, 0), EINVAL);
        EQ(syscall(SYS_futex, &l->word, 1, 1, 7, 7, 7), 0), EQ(syscall(SYS_futex, &l->word, 10 | 128, 1, 7, 7, 7), 0);
        EQ(syscall(SYS_futex, &l->word, 4, 1, 1, &l->count, n), 0), expect_errno(syscall(SYS_futex, &l->word, 4, 1, 1, &l->count, n + 1), EAGAIN);
        /* WAKE_OP: adds 5 to the other word. */
        unsigned before = l->count;
        EQ(syscall(SYS_futex, &l->word, 5, 1, 1, &l->count, 1 << 28 | 5 << 12), 0), EQ(l->count, before + 5);
        expect_errno(syscall(SYS_futex, (char *)&l->word + 1, 0, 0, NULL, NULL, 0), EINVAL);
        expect_errno(syscall(SYS_futex, &l->word, 77, 0, NULL, NULL, 0), ENOSYS);
        expect_errno(syscall(SYS_futex, (void *)-4096L, 0, 0, NULL, NULL, 0), EFAULT);
        EQ(syscall(SYS_getpid), getpid()), EQ(syscall(SYS_gettid, 1, 2, 3, 4, 5, 6), gettid());
    }
    char *gone = fresh(2);
    OK(munmap(gone + PAGE, PAGE));
    expect_errno(syscall(SYS_futex, gone + PAGE, 0, 0, NULL, NULL, 0), EFAULT);
    expect_errno(syscall(SYS_futex, gone, 0, 0, gone + PAGE, NULL, 0), EFAULT);
    OK(munmap(gone, PAGE));
}

static volatile int handled, enough;
static sigjmp_buf out;
static void uses_another(int signal) {
    (void)signal;
    int saved = errno;
    handled++;
    OK(sem_wait(&l->in_handler)), OK(sem_post(&l->in_handler));
    EQ(syscall(SYS_futex, &l->word, 129, 1, NULL, NULL, 0), 0);
    errno = saved;
}
static void forks(int signal) {
    (void)signal;
    int saved = errno;
    /* It may take longer than until the next one. */
    if (handled++ >= enough) return;
    expect_exit(CHILD(OK(sem_wait(&l->in_handler)); OK(sem_post(&l->in_handler));
                      EQ(syscall(SYS_futex, &l->word, 129, 1, NULL, NULL, 0), 0);), 0);
    errno = saved;
}
static void leaves(int signal) {
    (void)signal;
    handled++;
    siglongjmp(out, 1);
}
static void *hands_back(void *arg) {
    no_alarms();
    for (;;) {
        while (sem_wait(&l->there)) EQ(errno, EINTR);
        if (*(volatile int *)arg) return NULL;
        OK(sem_post(&l->back));
    }
}
/* A thread that gives and takes is interrupted again and again. */
static void interrupted(void (*handler)(int), int flags, int times, long us) {
    pthread_t t;
    volatile int last = 0;
    OK(pthread_create(&t, NULL, hands_back, (void *)&last));
    handle_signal(SIGALRM, handler, flags), handled = 0, enough = times, ring(us);
    while (handled < times) {
        OK(sem_post(&l->there));
        while (sem_wait(&l->back)) EQ(errno, EINTR);
    }
    ring(0), last = 1;
    OK(sem_post(&l->there)), OK(pthread_join(t, NULL));
    int value;
    OK(sem_getvalue(&l->back, &value)), EQ(value, 0);
}
/* More calls are left for good than can be in progress. */
static void left_for_good(void) {
    handled = 0;
    handle_signal(SIGALRM, leaves, 0);
    sigsetjmp(out, 1);
    ring(0);
    if (handled >= 300) return;
    ring(100 + handled);
    if (handled % 2) {
        OK(sem_wait(&l->never));
        die("%s:%d: nobody gave that", __FILE__, __LINE__);
    }
    for (;;) EQ(syscall(SYS_futex, &l->word, 129, 1, NULL, NULL, 0), 0);
}

static sem_t begun;
static volatile int cleaned;
static void cleanup(void *arg) {
    EQ(*(int *)arg, 7);
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}
static void unlock(void *mutex) { OK(pthread_mutex_unlock(mutex)); }
/* Waits for what never comes, or goes round in calls in which it can be cancelled. */
static void *waits_in_vain(void *arg) {
    int kept = 7, way = (int)(intptr_t)arg;
    struct timespec t = {0, 0};
    pthread_cleanup_push(cleanup, &kept);
    OK(sem_post(&begun));
    for (;;) {
        if (way % 3 == 0) {
            OK(pthread_mutex_lock(&l->mutex));
            pthread_cleanup_push(unlock, &l->mutex);
            for (;;) OK(pthread_cond_wait(&l->turn_came, &l->mutex));
            pthread_cleanup_pop(1);
        } else if (way % 3 == 1) {
            (void)sem_wait(&l->never);
        } else {
            expect_errno(sem_timedwait(&l->never, &t), ETIMEDOUT);
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}
static void cancelled(void) {
    enum { MANY = 90 };
    pthread_t t[MANY];
    OK(sem_init(&begun, 0, 0));
    for (int round = 0; round < 4; round++) {
        cleaned = 0;
        for (int n = 0; n < MANY; n++) OK(pthread_create(&t[n], NULL, waits_in_vain, (void *)(intptr_t)n));
        for (int n = 0; n < MANY; n++) OK(sem_wait(&begun));
        if (round % 2) sleep_ms(5), OK(pthread_cond_broadcast(&l->turn_came));
        for (int n = 0; n < MANY; n++) OK(pthread_cancel(t[n]));
        for (int n = 0; n < MANY; n++) {
            void *result;
            OK(pthread_join(t[n], &result)), CHECK(result == PTHREAD_CANCELED);
        }
        EQ(cleaned, MANY), OK(pthread_mutex_lock(&l->mutex)), OK(pthread_mutex_unlock(&l->mutex));
    }
}

/* Who is interrupted in such a call is found by who unwinds the stack: the handler's frames lead to the function that waits. */
static volatile int seen;
static __attribute__((noinline)) void waits_and_is_seen(void) {
    while (!seen) (void)sem_wait(&l->never);
    __asm__ volatile("");
}
static void looks(int signal) {
    (void)signal;
    void *frames[64];
    int n = backtrace(frames, 64);
    for (int i = 0; i < n; i++)
        if ((char *)frames[i] > (char *)waits_and_is_seen && (char *)frames[i] < (char *)waits_and_is_seen + 200) seen++;
    if (!seen) die("%s:%d: of %d frames, none is of who waits", __FILE__, __LINE__, n);
}
static void *pokes(void *arg) {
    sleep_ms(30);
    OK(pthread_kill(*(pthread_t *)arg, SIGUSR1));
    return NULL;
}
static void unwound(void) {
    void *first[1];
    backtrace(first, 1);
    pthread_t me = pthread_self(), t;
    handle_signal(SIGUSR1, looks, 0);
    for (int n = 0; n < 4; n++) {
        seen = 0;
        OK(pthread_create(&t, NULL, pokes, &me));
        waits_and_is_seen();
        OK(pthread_join(t, NULL)), EQ(seen, 1);
    }
}

/* Masks go along with contexts. */
static ucontext_t main_context, *other;
static volatile int turns;
static sigset_t mask(void) {
    sigset_t set;
    OK(pthread_sigmask(SIG_BLOCK, NULL, &set));
    return set;
}
static void other_side(void) {
    for (;;) {
        sigset_t set = mask();
        CHECK(sigismember(&set, SIGUSR2) && !sigismember(&set, SIGUSR1) && sigismember(&set, SIGSEGV));
        turns++;
        OK(swapcontext(other, &main_context));
    }
}
static void contexts(char *stack, size_t bytes) {
    expect_errno(setcontext(NULL), EFAULT), expect_errno(setcontext((void *)-4096L), EFAULT);
    other = (ucontext_t *)(area + 12 * PAGE - 400);
    OK(getcontext(other));
    other->uc_stack.ss_sp = stack, other->uc_stack.ss_size = bytes, other->uc_link = NULL;
    OK(sigemptyset(&other->uc_sigmask)), OK(sigaddset(&other->uc_sigmask, SIGUSR2)), OK(sigaddset(&other->uc_sigmask, SIGSEGV));
    makecontext(other, other_side, 0);
    sigset_t mine;
    OK(sigemptyset(&mine)), OK(sigaddset(&mine, SIGUSR1)), OK(sigaddset(&mine, SIGBUS));
    OK(pthread_sigmask(SIG_SETMASK, &mine, NULL));
    for (int n = 1; n <= ROUNDS; n++) {
        OK(swapcontext(&main_context, other));
        EQ(turns, n);
        sigset_t set = mask();
        CHECK(!sigismember(&set, SIGUSR2) && sigismember(&set, SIGUSR1) && sigismember(&set, SIGBUS) && !sigismember(&set, SIGSEGV));
        if (n % 100 == 0) evict_some(area, PAGES * PAGE);
    }
    OK(sigemptyset(&mine)), OK(pthread_sigmask(SIG_SETMASK, &mine, NULL));
}

int main(void) {
    tmpdir();
    area = fresh(PAGES);
    memset(area, 0, PAGES * PAGE);
    l = (struct locks *)(area + 3 * PAGE - 296);
    pthread_t t;
    static char stack[64 << 10];
    contexts(stack, sizeof stack);
    OK(pthread_create(&t, NULL, turns_over, NULL));
    turns = 0, contexts(stack, sizeof stack);
    /* A stack that goes at any instant, too. */
    turns = 0, contexts(area + 4 * PAGE, 4 * PAGE);
    make(), handed_on(), what_calls_say();
    interrupted(uses_another, SA_RESTART, 300, 100), interrupted(uses_another, 0, 300, 100), interrupted(forks, SA_RESTART, 20, 3000);
    left_for_good();
    make(), cancelled(), unwound();
    stop = 1;
    OK(pthread_join(t, NULL));
    puts("ok");
    return 0;
}
