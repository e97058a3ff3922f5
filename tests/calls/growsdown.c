/* Mappings that grow downwards where they are touched: at a place of the program's choice, as stacks of its own have it. */
#include "faults.h"
#include <ucontext.h>

/* The kernel keeps so much free below what grows. */
enum { ROOM = 1024, TOP = 16, GAP = 256 };

/* Room for a mapping that grows, with nothing in it but the mapping at its upper end. */
static char *stack_in(char *room, int prot) {
    OK(munmap(room, ROOM * PAGE));
    char *at = room + (ROOM - TOP) * PAGE;
    void *got = mmap(at, TOP * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    CHECK(got == at);
    return at;
}
static int mapped(char *p) {
    unsigned char in_use;
    return mincore(p, PAGE, &in_use) == 0;
}
static size_t depth_of(char *at) {
    size_t n = 0;
    while (mapped(at - (n + 1) * PAGE)) n++;
    return n;
}
static volatile uintptr_t deepest;
static __attribute__((noinline)) int deep(int n) {
    volatile char here[2000];
    volatile uintptr_t at = (uintptr_t)here;
    here[0] = (char)n, here[1999] = 1, deepest = at;
    return n ? deep(n - 1) + here[1999] : 0;
}
static ucontext_t home, there;
static void on_own_stack(void) { EQ(deep(400), 400); }
static void *thread(void *arg) {
    int n = (int)(long)arg;
    EQ(deep(n), n);
    return arg;
}
static void test(int kind) {
    char *room = kind == 0 ? fresh(ROOM) : mmap(NULL, ROOM * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(room != MAP_FAILED);
    if (kind == 0) fill(room, ROOM * PAGE, 9), evict(room, ROOM * PAGE);
    char *at = stack_in(room, PROT_READ | PROT_WRITE);
    check_zero(at, TOP * PAGE), fill(at, TOP * PAGE, 1), evict_some(at, TOP * PAGE);
    CHECK(!mapped(at - PAGE));
    /* It grows to where it is touched, not further. */
    EQ(touch(at - 1, 0), 0), EQ(depth_of(at), 1), check_zero(at - PAGE, PAGE);
    EQ(touch(at - 20 * PAGE + 5, 1), 0), EQ(depth_of(at), 20), check_zero(at - 20 * PAGE, 20 * PAGE);
    fill_from(at - 20 * PAGE, 20 * PAGE, 2, 0), evict_some(at - 20 * PAGE, 36 * PAGE);
    check(at - 20 * PAGE, 20 * PAGE, 2), check(at, TOP * PAGE, 1);
    /* A stack that somebody runs on. */
    OK(getcontext(&there));
    there.uc_stack.ss_sp = at, there.uc_stack.ss_size = TOP * PAGE, there.uc_link = &home;
    makecontext(&there, on_own_stack, 0);
    OK(swapcontext(&home, &there)), fill(at, TOP * PAGE, 1), CHECK((char *)deepest < at && mapped((char *)(deepest & -PAGE)));
    /* A child's grows by itself. */
    size_t before = depth_of(at);
    expect_exit(CHILD({
        EQ(depth_of(at), before), EQ(touch(at - (before + 50) * PAGE, 1), 0), EQ(depth_of(at), before + 50);
    }), 0);
    EQ(depth_of(at), before);
    /* Not into what is mapped below, nor as near as a guard. */
    char *below = room + 100 * PAGE;
    CHECK(mmap(below, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == below);
    FAULTS_WITH(below + 2 * PAGE, 1, SEGV_MAPERR);
    FAULTS_WITH(below + (GAP - 10) * PAGE, 0, SEGV_MAPERR);
    EQ(depth_of(at), before), EQ(touch(below + (GAP + 10) * PAGE, 1), 0), CHECK(mapped(below + (GAP + 10) * PAGE));
    check_zero(below, PAGE), OK(munmap(below, PAGE));
    /* As far as the limit of stacks allows. */
    OK(munmap(room, (ROOM - TOP) * PAGE)), EQ(depth_of(at), 0);
    struct rlimit limit, little;
    OK(getrlimit(RLIMIT_STACK, &limit)), little = limit, little.rlim_cur = 64 * PAGE;
    OK(setrlimit(RLIMIT_STACK, &little));
    EQ(touch(at - 48 * PAGE, 1), 0), EQ(depth_of(at), 48);
    FAULTS_WITH(at - 49 * PAGE, 1, SEGV_MAPERR);
    EQ(depth_of(at), 48);
    OK(setrlimit(RLIMIT_STACK, &limit)), EQ(touch(at - 49 * PAGE, 1), 0);
    check(at, TOP * PAGE, 1);
    /* Each with its own protection: a part of another one is what grows then. */
    OK(mprotect(at - 49 * PAGE, PAGE, PROT_READ)), EQ(touch(at - 50 * PAGE, 0), 0), EQ(depth_of(at), 50);
    FAULTS_WITH(at - 50 * PAGE, 1, SEGV_ACCERR);
    FAULTS_WITH(at - 51 * PAGE, 1, SEGV_ACCERR);
    /* What is unmapped does not grow. */
    OK(munmap(room, ROOM * PAGE));
    FAULTS_WITH(at - PAGE, 1, SEGV_MAPERR);
    FAULTS_WITH(at, 1, SEGV_MAPERR);
    char *plain = mmap(at, TOP * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(plain == at), EQ(touch(at, 1), 0);
    FAULTS_WITH(at - PAGE, 1, SEGV_MAPERR);
    OK(munmap(at, TOP * PAGE));
}
/* Where the kernel chooses, nothing that is near is above. */
static void anywhere(void) {
    char *p = mmap(NULL, TOP * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
    CHECK(p != MAP_FAILED), fill(p, TOP * PAGE, 4), check(p, TOP * PAGE, 4);
    char *q = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK, -1, 0);
    CHECK(q != MAP_FAILED);
    pthread_attr_t attr;
    pthread_t t;
    OK(pthread_attr_init(&attr)), OK(pthread_attr_setstack(&attr, q, 64 * PAGE));
    OK(pthread_create(&t, &attr, thread, (void *)50L)), OK(pthread_join(t, NULL));
    OK(munmap(p, TOP * PAGE)), OK(munmap(q, 64 * PAGE));
}
/* A thread on a stack that grows under it. */
static void of_a_thread(void) {
    char *at = stack_in(fresh(ROOM), PROT_READ | PROT_WRITE);
    pthread_attr_t attr;
    pthread_t t;
    OK(pthread_attr_init(&attr)), OK(pthread_attr_setstack(&attr, at, TOP * PAGE));
    OK(pthread_create(&t, &attr, thread, (void *)200L)), OK(pthread_join(t, NULL));
    CHECK(depth_of(at) > 10);
}
int main(void) {
    tmpdir();
    stack_t s = {.ss_sp = heap(64 << 10), .ss_size = 64 << 10};
    OK(sigaltstack(&s, NULL));
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    OK(sigaction(SIGSEGV, &a, NULL)), OK(sigaction(SIGBUS, &a, NULL));
    pressure(40);
    for (int kind = 0; kind < 2; kind++) test(kind);
    anywhere(), of_a_thread();
    puts("ok");
    return 0;
}
