/* Threads that spin, or wait for a lock, while signals come: handlers run in them, and leave as they like; processes that are ended
 * while they do all kinds of things have that status. */
#include "common.h"

enum { SIGNALS = 40, PIECES = 10, ROUNDS = 6, AREA = 5000 };
static pthread_spinlock_t spin;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static volatile int state, handled;
static char *area;

static void on_signal(int s) { (void)s, handled++; }
static void leaves(int s) {
    (void)s;
    exit(7);
}
static void handle(int s, void (*f)(int)) {
    struct sigaction a = {.sa_handler = f};
    OK(sigaction(s, &a, NULL));
}
static void *spinner(void *arg) {
    state = 1;
    OK(pthread_spin_lock(&spin)), state = 2, OK(pthread_spin_unlock(&spin));
    return arg;
}
static void *writer(void *arg) {
    state = 1;
    OK(pthread_rwlock_wrlock(&lock)), state = 2, OK(pthread_rwlock_unlock(&lock));
    return arg;
}
static void *reader(void *arg) {
    OK(pthread_rwlock_rdlock(&lock)), OK(pthread_rwlock_unlock(&lock));
    return arg;
}
static void *sweeper(void *arg) {
    while (!__atomic_load_n((int *)arg, __ATOMIC_SEQ_CST))
        for (size_t i = 0; i < AREA; i += 3) EQ(((unsigned char *)area)[i * PAGE], (unsigned char)i);
    return arg;
}
/* Signals while it waits, and memory that comes and goes beside it. */
static void waits(void *(*f)(void *), void (*unlock)(void)) {
    pthread_t t, beside;
    int done = 0;
    state = handled = 0;
    OK(pthread_create(&beside, NULL, sweeper, &done)), OK(pthread_create(&t, NULL, f, NULL));
    while (!state) usleep(1000);
    for (int i = 0; i < SIGNALS; i++) {
        int before = handled;
        OK(pthread_kill(t, SIGUSR1));
        while (handled == before) usleep(100);
    }
    EQ(state, 1), unlock(), OK(pthread_join(t, NULL)), EQ(state, 2);
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST), OK(pthread_join(beside, NULL));
}
static void unlock_spin(void) { OK(pthread_spin_unlock(&spin)); }
static void unlock_rw(void) { OK(pthread_rwlock_unlock(&lock)); }
/* On one processor, with priorities where the program may have them: a writer waits behind a reader, another reader behind it. */
static void one_processor(void) {
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    struct sched_param low = {.sched_priority = 2}, high = {.sched_priority = 4}, none = {.sched_priority = 0};
    int real_time = pthread_setschedparam(pthread_self(), SCHED_FIFO, &high) == 0;
    pthread_t w, r;
    state = 0;
    OK(pthread_rwlock_rdlock(&lock)), OK(pthread_create(&w, NULL, writer, NULL));
    if (real_time) pthread_setschedparam(w, SCHED_FIFO, &low);
    while (!state) usleep(1000);
    usleep(20000), OK(pthread_create(&r, NULL, reader, NULL)), usleep(20000);
    for (size_t i = 0; i < AREA; i++) EQ(((unsigned char *)area)[i * PAGE], (unsigned char)i);
    EQ(state, 1), OK(pthread_rwlock_unlock(&lock)), OK(pthread_join(w, NULL)), OK(pthread_join(r, NULL)), EQ(state, 2);
    if (real_time) OK(pthread_setschedparam(pthread_self(), SCHED_OTHER, &none));
    OK(sched_setaffinity(0, sizeof all, &all));
}
/* A handler that ends the process while its thread spins. */
static void ended_by_a_handler(void) {
    expect_exit(CHILD({
        pthread_t t;
        handle(SIGUSR1, leaves), state = 0, OK(pthread_spin_init(&spin, 0)), OK(pthread_spin_lock(&spin));
        OK(pthread_create(&t, NULL, spinner, NULL));
        while (!state) usleep(1000);
        OK(pthread_kill(t, SIGUSR1)), pthread_join(t, NULL);
    }), 7);
}
/* Children that are told to end before, while and after they make their first steps. */
static void ended_by_others(void) {
    pid_t pids[PIECES];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PIECES; i++)
            pids[i] = CHILD({
                for (size_t k = (size_t)i;; k = (k + 7) % AREA) {
                    EQ(((unsigned char *)area)[k * PAGE], (unsigned char)k);
                    if (i % 4 == 1 && k % 50 == 0) *(volatile char *)(area + k * PAGE) = (char)k;
                    if (i % 4 == 2) usleep(100);
                    if (i % 4 == 3 && k % 512 == 0) free(memset(heap(1 << 20), 1, 1 << 20));
                }
            });
        if (round % 2) usleep(3000u * (unsigned)round);
        for (int i = 0; i < PIECES; i++) OK(kill(pids[i], i % 5 ? SIGTERM : SIGINT));
        for (int i = 0; i < PIECES; i++) {
            int status;
            EQ(waitpid(pids[i], &status, 0), pids[i]), CHECK(WIFSIGNALED(status)), EQ(WTERMSIG(status), i % 5 ? SIGTERM : SIGINT);
        }
    }
}
int main(void) {
    tmpdir();
    area = fresh(AREA);
    for (size_t i = 0; i < AREA; i++) memset(area + i * PAGE, (int)i, PAGE);
    handle(SIGUSR1, on_signal), pressure(24);
    OK(pthread_spin_init(&spin, 0)), OK(pthread_spin_lock(&spin)), waits(spinner, unlock_spin);
    OK(pthread_rwlock_rdlock(&lock)), waits(writer, unlock_rw), OK(pthread_rwlock_wrlock(&lock)), waits(writer, unlock_rw);
    one_processor(), ended_by_a_handler(), ended_by_others();
    puts("ok");
    return 0;
}
