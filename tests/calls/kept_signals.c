/* Signals that come while faults are served, one after the other: each comes once, in its order, with what was sent with it, and a
 * handler may fault, leave by a jump, or be meant for one signal alone; in a program of few threads, and of many. */
#include "common.h"
#include <setjmp.h>

enum { AREA = 5000, QUEUED = 8000, ONCE = 300, JUMPS = 1000, BARRIERS = 400, THREADS = 5 };
static char *area, *barrier;
static volatile int last, once, jumped, barriers, jumps_wanted;
static pthread_t touched;
static uint64_t seed = 1;
static sigjmp_buf back;

static void touch_one(uint64_t *s) {
    size_t i = next_random(s) % AREA;
    EQ(*(int *)(area + i * PAGE), (int)i);
    *(volatile int *)(area + i * PAGE + 8) = (int)i;
}
static void is_masked(int signal, int more) {
    sigset_t now;
    OK(pthread_sigmask(SIG_BLOCK, NULL, &now));
    for (int s = 1; s < SIGRTMAX; s++) EQ(sigismember(&now, s) == 1, s == signal || s == more);
}
static void in_order(int signal, siginfo_t *info, void *context) {
    (void)context;
    static uint64_t s = 7;
    EQ(info->si_signo, signal), EQ(info->si_code, SI_QUEUE), EQ(info->si_pid, getpid()), EQ(info->si_value.sival_int, last + 1);
    touch_one(&s), is_masked(signal, SIGUSR2), last++;
}
static void only_once(int signal) { is_masked(signal, 0), once++; }
static void leaves(int signal) {
    is_masked(signal, 0), jumped++;
    siglongjmp(back, 1);
}
static void lifts(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    CHECK(info->si_addr == barrier), OK(mprotect(barrier, PAGE, PROT_READ | PROT_WRITE)), barriers++;
}
static void handle(int signal, void *handler, int flags, int more) {
    struct sigaction a = {.sa_flags = flags};
    if (flags & SA_SIGINFO) a.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
    else a.sa_handler = (void (*)(int))handler;
    if (more) sigaddset(&a.sa_mask, more);
    OK(sigaction(signal, &a, NULL));
}
static void *queues(void *arg) {
    for (int i = 1; i <= QUEUED; i++) {
        int e;
        while ((e = pthread_sigqueue(touched, SIGRTMIN + 1, (union sigval){.sival_int = i})) == EAGAIN) usleep(100);
        OK(e);
        if (i % 64 == 0) usleep(200);
    }
    return arg;
}
static void *sends_once(void *arg) {
    for (int i = 1; i <= ONCE; i++) {
        while (once != i - 1 || jumped != i - 1) usleep(20);
        OK(pthread_kill(touched, SIGUSR2));
    }
    return arg;
}
static void *sends_jumps(void *arg) {
    for (int i = 0; i < JUMPS; i++) {
        while (jumped != i || !jumps_wanted) usleep(10);
        OK(pthread_kill(touched, SIGUSR1));
    }
    return arg;
}
/* Both kinds of signals beside each other, and faults that are the program's own. */
static void ordered(void) {
    pthread_t t;
    handle(SIGRTMIN + 1, in_order, SA_SIGINFO, SIGUSR2), handle(SIGSEGV, lifts, SA_SIGINFO, SIGRTMIN + 1);
    OK(pthread_create(&t, NULL, queues, NULL));
    for (int k = 0; last < QUEUED; k++) {
        touch_one(&seed);
        if (k % 16 == 0 && barriers < BARRIERS) {
            int before = barriers;
            OK(mprotect(barrier, PAGE, PROT_READ)), *(volatile char *)barrier = 1, EQ(barriers, before + 1);
        }
        if (k % 256 == 0) {
            sigset_t now, pending;
            OK(pthread_sigmask(SIG_BLOCK, NULL, &now)), OK(sigpending(&pending));
            for (int s = 1; s < SIGRTMAX; s++) EQ(sigismember(&now, s), 0);
        }
    }
    OK(pthread_join(t, NULL));
}
static void for_one(void) {
    pthread_t t;
    handle(SIGUSR2, only_once, (int)SA_RESETHAND, 0);
    OK(pthread_create(&t, NULL, sends_once, NULL));
    for (int i = 1; i <= ONCE; i++) {
        struct sigaction now;
        while (once != i) touch_one(&seed);
        OK(sigaction(SIGUSR2, NULL, &now)), CHECK(now.sa_handler == SIG_DFL);
        handle(SIGUSR2, only_once, (int)SA_RESETHAND, 0), jumped = i;
    }
    OK(pthread_join(t, NULL)), jumped = 0;
}
static void away(void) {
    pthread_t t;
    handle(SIGUSR1, leaves, 0, 0);
    OK(pthread_create(&t, NULL, sends_jumps, NULL));
    sigsetjmp(back, 1);
    jumps_wanted = 1;
    while (jumped < JUMPS) touch_one(&seed);
    OK(pthread_join(t, NULL));
}
/* Threads that are there. */
static void *waits(void *arg) {
    for (;;) pause();
    return arg;
}
static void all(void) {
    last = once = jumped = barriers = jumps_wanted = 0;
    ordered(), for_one(), away();
}
/* A thread that has not faulted before, on its first stack. */
static void *in_a_thread(void *arg) {
    touched = pthread_self();
    ordered();
    return arg;
}
int main(void) {
    area = fresh(AREA), barrier = fresh(1);
    for (size_t i = 0; i < AREA; i++) *(int *)(area + i * PAGE) = (int)i;
    evict(area, AREA * PAGE);
    touched = pthread_self();
    all();
    pthread_t t;
    for (int i = 0; i < THREADS; i++) OK(pthread_create(&t, NULL, waits, NULL));
    all();
    last = 0, barriers = 0;
    OK(pthread_create(&t, NULL, in_a_thread, NULL)), OK(pthread_join(t, NULL));
    puts("ok");
    return 0;
}
