/* A handler of SIGSEGV that faults itself: the process dies, unless the handler asked to be entered again. Handlers on
 * stacks of their own see overflows, and may overflow themselves. */
#include "faults.h"

enum { STACK = 64 << 10 };
static char *area;
/* Shared, so that a parent sees what its child came to. */
static volatile sig_atomic_t *times;
#define entered (*times)

static void install(int s, void (*f)(int, siginfo_t *, void *), int flags) {
    struct sigaction a = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | flags}, now;
    sigemptyset(&a.sa_mask), sigaddset(&a.sa_mask, SIGUSR2);
    OK(sigaction(s, &a, NULL));
    OK(sigaction(s, NULL, &now));
    CHECK(now.sa_sigaction == f);
    /* The C library adds SA_RESTORER. */
    EQ(now.sa_flags & ~0x04000000, SA_SIGINFO | flags);
    EQ(sigismember(&now.sa_mask, SIGUSR2), 1), EQ(sigismember(&now.sa_mask, SIGUSR1), 0);
    EQ(sigismember(&now.sa_mask, SIGSEGV), 0), EQ(sigismember(&now.sa_mask, SIGBUS), 0);
}
static pid_t in_child(void (*f)(void)) {
    entered = 0;
    return CHILD({
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        evict(area, 64 * PAGE);
        f();
        _exit(88);
    });
}
static void fault(void) { *(volatile char *)(uintptr_t)(8 + entered) = 1; }

static void faults_again(int s, siginfo_t *i, void *c) {
    (void)s, (void)i, (void)c;
    check(area, 64 * PAGE, 1);
    if (++entered >= 50) _exit(77);
    fault();
}
static void plain_handler(void) { install(SIGSEGV, faults_again, 0), fault(); }
static void bus_handler(void) {
    make_file("short", 10, 1);
    int fd = open("short", O_RDWR);
    char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    install(SIGBUS, faults_again, 0);
    *(volatile char *)(p + PAGE) = 1;
}
static void reenter(void) { install(SIGSEGV, faults_again, SA_NODEFER), fault(); }
static void once(void) { install(SIGSEGV, faults_again, SA_RESETHAND | SA_NODEFER), fault(); }

static void resets(int s, siginfo_t *i, void *c) {
    (void)i, (void)c;
    struct sigaction now;
    OK(sigaction(s, NULL, &now));
    CHECK(now.sa_handler == SIG_DFL);
    entered++;
    siglongjmp(fault_jump, 1);
}
/* A handler without SA_NODEFER that leaves by a jump can be entered again: the mask came back with it. */
static void again_after_jump(void) {
    for (int i = 0; i < 20; i++) {
        install(SIGSEGV, resets, SA_RESETHAND);
        if (!sigsetjmp(fault_jump, 1)) fault();
        EQ(entered, i + 1);
    }
    _exit(5);
}
static void raises(int s, siginfo_t *i, void *c) {
    (void)i, (void)c;
    if (++entered > 1) _exit(77);
    signal(s, SIG_DFL);
    raise(s);
    /* Blocked while its handler runs, so it comes when the handler returns. */
}
static void sent_while_handled(void) { install(SIGSEGV, raises, 0), fault(); }

/* Deep enough for any stack; every level leaves bytes that the compiler cannot do without. */
static __attribute__((noinline)) int deeper(int n) {
    volatile char room[2000];
    room[n % 2000] = n;
    return n > 0 ? deeper(n - 1) + room[n % 2000] : 0;
}
static void alternate(int in_managed) {
    char *p = in_managed ? fresh(STACK / PAGE + 1)
                         : mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(p != MAP_FAILED);
    OK(mprotect(p, PAGE, PROT_NONE));
    stack_t s = {.ss_sp = p + PAGE, .ss_size = STACK};
    OK(sigaltstack(&s, NULL));
}
static void overflows(int s, siginfo_t *i, void *c) {
    (void)s, (void)i, (void)c;
    if (++entered > 1) _exit(77);
    _exit(deeper(1 << 20) ? 77 : 78);
}
static void overflow_managed(void) { alternate(1), install(SIGSEGV, overflows, SA_ONSTACK), fault(); }
static void overflow_other(void) { alternate(0), install(SIGSEGV, overflows, SA_ONSTACK), fault(); }
static void overflow_nodefer(void) { alternate(0), install(SIGSEGV, overflows, SA_ONSTACK | SA_NODEFER), fault(); }

static void sees_overflow(int s, siginfo_t *i, void *c) {
    (void)s, (void)i, (void)c;
    stack_t now;
    OK(sigaltstack(NULL, &now));
    EQ(now.ss_flags, SS_ONSTACK);
    CHECK((char *)&now >= (char *)now.ss_sp && (char *)&now < (char *)now.ss_sp + now.ss_size);
    check(area, 64 * PAGE, 1);
    entered++;
    siglongjmp(fault_jump, 1);
}
static void *overflow_thread(void *managed) {
    alternate(managed != NULL);
    install(SIGSEGV, sees_overflow, SA_ONSTACK);
    if (!sigsetjmp(fault_jump, 1)) deeper(1 << 20);
    return NULL;
}
static void stack_overflow(void) {
    for (long i = 0; i < 4; i++) {
        pthread_t t;
        OK(pthread_create(&t, NULL, overflow_thread, (void *)(i % 2))), OK(pthread_join(t, NULL));
        EQ(entered, i + 1);
    }
    struct rlimit small = {1 << 20, 1 << 20};
    OK(setrlimit(RLIMIT_STACK, &small));
    overflow_thread(NULL), EQ(entered, 5);
    _exit(5);
}
/* Without a stack of its own, the handler cannot run. */
static void no_room(void) {
    struct rlimit small = {1 << 20, 1 << 20};
    OK(setrlimit(RLIMIT_STACK, &small));
    install(SIGSEGV, faults_again, 0);
    deeper(1 << 20);
}
int main(void) {
    tmpdir();
    times = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(times != MAP_FAILED);
    area = fresh(64);
    fill(area, 64 * PAGE, 1);
    expect_signal(in_child(plain_handler), SIGSEGV), EQ(entered, 1);
    expect_signal(in_child(bus_handler), SIGSEGV), EQ(entered, 1);
    expect_exit(in_child(reenter), 77), EQ(entered, 50);
    expect_signal(in_child(once), SIGSEGV), EQ(entered, 1);
    expect_exit(in_child(again_after_jump), 5), EQ(entered, 20);
    expect_signal(in_child(sent_while_handled), SIGSEGV), EQ(entered, 1);
    expect_signal(in_child(overflow_managed), SIGSEGV), EQ(entered, 1);
    expect_signal(in_child(overflow_other), SIGSEGV), EQ(entered, 1);
    /* The guard page is outside of the stack, so that the handler begins at its top again. */
    expect_exit(in_child(overflow_nodefer), 77), EQ(entered, 2);
    expect_exit(in_child(stack_overflow), 5);
    expect_signal(in_child(no_room), SIGSEGV), EQ(entered, 0);
    check(area, 64 * PAGE, 1);
    puts("ok");
    return 0;
}
