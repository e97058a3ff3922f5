/* Signals in threads that use much memory while others fork: handlers run on alternate stacks in ordinary memory, one on top
 * of the other, and find all as it was. */
#include "common.h"

enum { THREADS = 3, PAGES = (14 << 20) / PAGE, FORKS = 24, ALTERNATE = 64 << 10 };
static char *common;
static volatile int stop;
static _Atomic unsigned handled;

static void handler(int s) {
    volatile char here[500];
    here[9] = s;
    int saved = errno;
    for (int k = 0; k < 3; k++) {
        size_t i = handled++ * 37 % 512;
        EQ(*(volatile size_t *)(common + i * PAGE), i);
    }
    CHECK(here[9] == (char)s);
    errno = saved;
}
static void *works(void *arg) {
    char *p = fresh(PAGES), *stack = heap(ALTERNATE);
    stack_t s = {.ss_sp = stack, .ss_size = ALTERNATE}, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&s, NULL));
    for (int round = 0; !stop; round++) {
        noise(p, PAGES * PAGE, round + (long)arg), check_noise(p, PAGES * PAGE, round + (long)arg);
        if (arg == NULL || round % 4) continue;
        expect_exit(CHILD({
            check_noise(p, PAGES * PAGE, round + (long)arg);
            noise(p, PAGES / 4 * PAGE, round + 7), check_noise(p, PAGES / 4 * PAGE, round + 7);
        }), 0);
    }
    OK(sigaltstack(&none, NULL)), free(stack), OK(munmap(p, PAGES * PAGE));
    return NULL;
}
static void timers(long us) {
    struct itimerval t = {{0, us}, {0, us}};
    OK(setitimer(ITIMER_REAL, &t, NULL)), OK(setitimer(ITIMER_PROF, &t, NULL)), OK(setitimer(ITIMER_VIRTUAL, &t, NULL));
}
int main(void) {
    tmpdir();
    common = fresh(512);
    for (size_t i = 0; i < 512; i++) *(size_t *)(common + i * PAGE) = i;
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    OK(sigaction(SIGALRM, &a, NULL));
    a.sa_flags = SA_RESTART, OK(sigaction(SIGPROF, &a, NULL)), OK(sigaction(SIGVTALRM, &a, NULL));
    timers(2000);
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) OK(pthread_create(t + i, NULL, works, (void *)i));
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = CHILD({
            for (size_t k = 0; k < 512; k++) EQ(*(volatile size_t *)(common + k * PAGE), k);
            char *p = fresh(1024);
            noise(p, 1024 * PAGE, i), check_noise(p, 1024 * PAGE, i);
        });
        int status;
        while (waitpid(pid, &status, 0) != pid) EQ(errno, EINTR);
        EQ(status, 0);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) OK(pthread_join(t[i], NULL));
    timers(0);
    CHECK(handled > 0);
    puts("ok");
    return 0;
}
