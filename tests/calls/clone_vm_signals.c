/* Signals in a process whose memory another one shares, while both need pages: handlers on the alternate stack and on the
 * stack that is in use, timers of all kinds. */
#include "common.h"

enum { PAGES = (40 << 20) / PAGE, ROUNDS = 20, STACK = 256 << 10, ALTERNATE = 64 << 10 };
static char *shared, *stack, *scratch;
static int ends[2];
static volatile sig_atomic_t handled;

static void look(size_t i) { EQ(*(volatile size_t *)(shared + i % PAGES * PAGE), i % PAGES); }
static void handler(int s) {
    volatile char here[2000];
    here[9] = s;
    int saved = errno;
    for (int k = 0; k < 3; k++) look((size_t)handled * 37 + k * 1000);
    CHECK(here[9] == (char)s);
    handled++, errno = saved;
}
static int sharer(void *arg) {
    for (size_t i = 0; i < 300; i++) {
        look((size_t)arg + i * 131);
        char *p = scratch + (size_t)arg * 7 % 64 * PAGE;
        struct iovec v[2] = {{p, 200}, {p + 3 * PAGE, 9000}};
        p[i]++;
        if (i % 3 == 0) CHECK(pread(ends[0], p + 100, 20000, 0) == -1 && write(-1, p, 20000) == -1 && writev(-1, v, 2) == -1);
        if (i % 16 == 0) madvise(p, 8 * PAGE, MADV_PAGEOUT);
    }
    syscall(SYS_exit_group, 5);
    return 0;
}
static void timers(long us) {
    struct itimerval t = {{0, us}, {0, us}};
    OK(setitimer(ITIMER_REAL, &t, NULL)), OK(setitimer(ITIMER_PROF, &t, NULL)), OK(setitimer(ITIMER_VIRTUAL, &t, NULL));
}
static void *rounds(void *arg) {
    char *p = heap(ALTERNATE);
    stack_t s = {.ss_sp = p, .ss_size = ALTERNATE}, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&s, NULL));
    for (long round = 0; round < ROUNDS; round++) {
        pid_t pid = clone(sharer, stack + STACK, CLONE_VM | SIGCHLD, (void *)(round * 977));
        CHECK(pid > 0);
        int status;
        for (size_t i = 0; i < 500; i++) look(round * 10007 + i * 61);
        /* Both write the same errno. */
        while (waitpid(pid, &status, 0) != pid) {
        }
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
        /* Handlers are on it all the time. */
        evict_some(p, ALTERNATE);
    }
    OK(sigaltstack(&none, NULL)), free(p);
    return arg;
}
int main(void) {
    tmpdir();
    shared = fresh(PAGES), scratch = fresh(128);
    OK(pipe(ends));
    for (size_t i = 0; i < PAGES; i++) *(size_t *)(shared + i * PAGE) = i;
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(stack != MAP_FAILED);
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    OK(sigaction(SIGALRM, &a, NULL));
    a.sa_flags = SA_RESTART, OK(sigaction(SIGPROF, &a, NULL));
    a.sa_flags = 0, OK(sigaction(SIGVTALRM, &a, NULL));
    timers(1000);
    rounds(NULL);
    pthread_t t;
    OK(pthread_create(&t, NULL, rounds, NULL)), OK(pthread_join(t, NULL));
    timers(0);
    CHECK(handled > 0);
    for (size_t i = 0; i < PAGES; i++) look(i);
    puts("ok");
    return 0;
}
