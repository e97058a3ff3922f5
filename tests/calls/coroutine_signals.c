/* Handlers that run while the thread is on a stack in ordinary memory: deep, on pages never touched or evicted, with and
 * without SA_ONSTACK; stacks of makecontext and made by hand. */
#include "common.h"
#include <ucontext.h>

enum { STACK = 1 << 20, DEPTH = 100, COROUTINES = 6 };
static ucontext_t home, contexts[COROUTINES];
static char *stacks[COROUTINES], *area;
static volatile int handled;
static volatile int evicting;

static void handler(int s, siginfo_t *i, void *c) {
    (void)i, (void)c;
    char local[600];
    memset(local, s, sizeof local);
    CHECK(area[(handled % 64) * PAGE + 5] == (char)byte_at(1, (handled % 64) * PAGE + 5));
    if (handled % 7 == 0) evict(area, 64 * PAGE);
    CHECK(local[599] == (char)s);
    handled++;
}
static __attribute__((noinline)) int deep(int depth) {
    volatile char room[3000];
    room[0] = depth, room[2999] = depth;
    if (evicting) evict_some((void *)((uintptr_t)room - 64 * PAGE), 68 * PAGE);
    OK(raise(SIGUSR1));
    int below = depth ? deep(depth - 1) : 0;
    if (evicting && depth % 8 == 0) evict_some((void *)((uintptr_t)room - 64 * PAGE), 64 * PAGE + 3000), OK(raise(SIGUSR1));
    EQ(room[0], (char)depth), EQ(room[2999], (char)depth);
    return below + 1;
}
static void body(void) { EQ(deep(DEPTH), DEPTH + 1); }

/* A stack that the C library knows nothing of. */
static void by_hand(char *top) {
    __asm__ volatile("movq %%rsp, %%rbx\n\tmovq %0, %%rsp\n\tcall *%1\n\tmovq %%rbx, %%rsp"
        :
        : "r"(top), "r"(body)
        : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}
static void timer(long us) {
    struct itimerval t = {{0, us}, {0, us}};
    OK(setitimer(ITIMER_REAL, &t, NULL));
}
/* Interrupted anywhere, for a while. */
static void interrupted(void) {
    int until = handled + 200;
    timer(300);
    while (handled < until) deep(20);
    timer(0);
}
static void *all(void *arg) {
    for (volatile int flags = 0; flags < 2; flags++) {
        struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | (flags ? SA_ONSTACK : 0)};
        OK(sigaction(SIGUSR1, &a, NULL)), OK(sigaction(SIGALRM, &a, NULL));
        for (volatile int i = 0; i < COROUTINES; i++) {
            evicting = i % 2;
            stacks[i] = i % 3 ? heap(STACK) : fresh(STACK / PAGE);
            OK(getcontext(&contexts[i]));
            contexts[i].uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK}, contexts[i].uc_link = &home;
            makecontext(&contexts[i], i == COROUTINES - 1 && !arg ? interrupted : body, 0);
            OK(swapcontext(&home, &contexts[i]));
        }
        for (int i = 0; i < 4; i++) {
            char *p = i % 2 ? heap(STACK) : fresh(STACK / PAGE);
            evicting = i / 2;
            by_hand((char *)((uintptr_t)(p + STACK - 64) & ~63UL));
            if (i % 2)
                free(p);
            else
                OK(munmap(p, STACK));
        }
        for (int i = 0; i < COROUTINES; i++)
            if (i % 3)
                free(stacks[i]);
            else
                OK(munmap(stacks[i], STACK));
    }
    return NULL;
}
int main(void) {
    tmpdir();
    area = fresh(64);
    fill(area, 64 * PAGE, 1);
    all(NULL);
    /* In a thread with an alternate stack of its own in such memory, and one without. */
    pthread_t t;
    OK(pthread_create(&t, NULL, all, area)), OK(pthread_join(t, NULL));
    stack_t s = {.ss_sp = heap(64 << 10), .ss_size = 64 << 10};
    OK(sigaltstack(&s, NULL));
    all(area);
    check(area, 64 * PAGE, 1);
    puts("ok");
    return 0;
}
