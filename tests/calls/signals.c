/* A program's own signal handling beside a pager that lives on SIGBUS: addresses, codes, stacks, masks, jumps,
 * storms,
 * restarted calls. */
#include "faults.h"
#include <sys/ucontext.h>

static volatile sig_atomic_t seen, depth, code, number, alarms;
static char *area;

static void count(int s, siginfo_t *i, void *c) {
    (void)c;
    seen++, number = s, code = i->si_code;
}
static void install(int s, void (*f)(int, siginfo_t *, void *), int flags) {
    struct sigaction a = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | flags};
    sigfillset(&a.sa_mask);
    if (flags & SA_NODEFER) sigemptyset(&a.sa_mask);
    OK(sigaction(s, &a, NULL));
}
static pid_t in_child(void (*f)(void)) {
    pid_t pid = fork();
    if (!pid) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        f();
        _exit(0);
    }
    return pid;
}
static char *beyond_end(void) {
    make_file("short", 10, 1);
    int fd = open("short", O_RDWR);
    char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    close(fd);
    return p + PAGE;
}
static void real_faults(void) {
    catch_faults();
    char *p = beyond_end();
    EQ(touch(p + 7, 0), SIGBUS), EQ(fault_code, BUS_ADRERR);
    EQ(touch(p + 9, 1), SIGBUS);
    FAULTS_WITH((char *)16, 0, SEGV_MAPERR);
    FAULTS_WITH(guarded(1) + HOLE / 2, 1, SEGV_MAPERR);
    for (int i = 0; i < 3; i++) {
        evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
        FAULTS_WITH((char *)(uintptr_t)(32 + i), 1, SEGV_MAPERR);
    }
}
/* Sent by hand, SIGBUS and SIGSEGV are signals like any other. */
static void sent(void) {
    int both[] = {SIGBUS, SIGSEGV};
    for (int i = 0; i < 2; i++) {
        install(both[i], count, 0);
        seen = 0;
        OK(raise(both[i])), EQ(seen, 1), EQ(number, both[i]), EQ(code, SI_TKILL);
        OK(kill(getpid(), both[i])), EQ(seen, 2), EQ(code, SI_USER);
        OK(sigqueue(getpid(), both[i], (union sigval){.sival_int = 3})), EQ(seen, 3), EQ(code, SI_QUEUE);
        signal(both[i], SIG_IGN);
        OK(raise(both[i])), EQ(seen, 3);
        evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
        struct sigaction now;
        OK(sigaction(both[i], NULL, &now)), CHECK(now.sa_handler == SIG_IGN);
        signal(both[i], SIG_DFL);
        OK(sigaction(both[i], NULL, &now)), CHECK(now.sa_handler == SIG_DFL);
    }
}
static void default_bus(void) { *(volatile char *)beyond_end() = 1; }
static void default_segv(void) { *(volatile char *)16 = 1; }
static void raise_bus(void) { raise(SIGBUS); }
static void do_abort(void) { abort(); }
static void block_bus(void) {
    sigset_t s;
    sigfillset(&s);
    sigprocmask(SIG_BLOCK, &s, NULL);
    evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
    default_bus();
}
static void ignore_bus(void) {
    signal(SIGBUS, SIG_IGN);
    evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
    default_bus();
}
static void deaths(void) {
    signal(SIGBUS, SIG_DFL), signal(SIGSEGV, SIG_DFL);
    expect_signal(in_child(default_bus), SIGBUS), expect_signal(in_child(default_segv), SIGSEGV);
    expect_signal(in_child(raise_bus), SIGBUS), expect_signal(in_child(do_abort), SIGABRT);
    expect_signal(in_child(block_bus), SIGBUS), expect_signal(in_child(ignore_bus), SIGBUS);
}
/* All signals blocked, evicted memory still comes back, in every thread. */
static void *all_blocked(void *arg) {
    sigset_t all, old, now;
    sigfillset(&all);
    OK(pthread_sigmask(SIG_SETMASK, &all, &old));
    for (int i = 0; i < 20; i++) evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
    OK(pthread_sigmask(SIG_SETMASK, NULL, &now));
    EQ(sigismember(&now, SIGBUS), 1), EQ(sigismember(&now, SIGSEGV), 1), EQ(sigismember(&now, SIGUSR1), 1);
    OK(pthread_sigmask(SIG_SETMASK, &old, NULL));
    OK(pthread_sigmask(SIG_SETMASK, NULL, &now)), EQ(sigismember(&now, SIGBUS), 0);
    return arg;
}
/* On an alternate stack that lies in managed memory and was evicted before. */
static volatile char *stack_low, *stack_high;
static void on_stack(int s, siginfo_t *i, void *c) {
    char here[2000];
    volatile char *p = here;
    (void)s, (void)i, (void)c;
    memset(here, 3, sizeof here);
    CHECK(p > stack_low && p < stack_high);
    evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
    seen++;
}
static void on_stack_jump(int s, siginfo_t *i, void *c) {
    on_stack(s, i, c);
    siglongjmp(fault_jump, 1);
}
static void alternate(void) {
    char *stack = fresh(32);
    fill(stack, 32 * PAGE, 5), evict(stack, 32 * PAGE);
    stack_low = stack, stack_high = stack + 32 * PAGE;
    stack_t s = {.ss_sp = stack, .ss_size = 32 * PAGE}, now;
    OK(sigaltstack(&s, NULL));
    install(SIGUSR1, on_stack, SA_ONSTACK), install(SIGBUS, on_stack_jump, SA_ONSTACK);
    seen = 0;
    for (int i = 0; i < 5; i++) evict(stack, 32 * PAGE), OK(raise(SIGUSR1));
    EQ(seen, 5);
    char *p = beyond_end();
    for (int i = 0; i < 3; i++) {
        evict(stack, 32 * PAGE);
        if (!sigsetjmp(fault_jump, 1)) *(volatile char *)p = 1;
    }
    EQ(seen, 8);
    OK(sigaltstack(NULL, &now)), CHECK(now.ss_sp == stack), EQ(now.ss_flags, 0);
    s.ss_flags = SS_DISABLE;
    OK(sigaltstack(&s, NULL)), OK(munmap(stack, 32 * PAGE));
}
/* A handler that faults, is interrupted and faults again. */
static void nested(int s, siginfo_t *i, void *c) {
    (void)i, (void)c;
    int mine = ++depth;
    if (seen < depth) seen = depth;
    evict(area, 8 * PAGE);
    if (mine < 20) raise(s == SIGUSR1 ? SIGUSR2 : SIGUSR1);
    check(area, 8 * PAGE, 1);
    depth--;
}
static void jump_out(int s, siginfo_t *i, void *c) {
    (void)s, (void)i, (void)c;
    evict(area, 8 * PAGE), check(area, PAGE, 1);
    siglongjmp(fault_jump, 1);
}
static void on_alarm(int s, siginfo_t *i, void *c) {
    (void)s, (void)i, (void)c;
    alarms++;
    int saved = errno;
    evict(area + 4 * PAGE, 4 * PAGE);
    CHECK(area[5 * PAGE] == (char)byte_at(1, 5 * PAGE));
    errno = saved;
}
static void storm(void) {
    char *p = fresh(512);
    fill(p, 512 * PAGE, 9);
    install(SIGALRM, on_alarm, SA_RESTART);
    struct itimerval often = {{0, 200}, {0, 200}}, off = {{0, 0}, {0, 0}};
    alarms = 0;
    OK(setitimer(ITIMER_REAL, &often, NULL));
    for (int i = 0; i < 20 || alarms < 100; i++) {
        evict(p, 512 * PAGE);
        errno = 12345;
        for (int j = 0; j < 512; j++) CHECK(p[j * PAGE + i] == (char)byte_at(9, j * PAGE + i));
        EQ(errno, 12345);
    }
    OK(setitimer(ITIMER_REAL, &off, NULL));
    check(p, 512 * PAGE, 9), OK(munmap(p, 512 * PAGE));
}
/* A blocking read is restarted, or is not, as the handler was installed. */
static void *write_later(void *fd) {
    sigset_t all;
    sigfillset(&all), pthread_sigmask(SIG_SETMASK, &all, NULL);
    usleep(60000);
    write_all(*(int *)fd, area, 2 * PAGE);
    return NULL;
}
static void restart(void) {
    struct itimerval some = {{0, 5000}, {0, 5000}}, off = {{0, 0}, {0, 0}};
    int pipes[2];
    OK(pipe(pipes));
    char *p = fresh(4);
    pthread_t t;
    install(SIGALRM, on_alarm, SA_RESTART);
    alarms = 0;
    OK(pthread_create(&t, NULL, write_later, pipes + 1));
    OK(setitimer(ITIMER_REAL, &some, NULL));
    fill(p, 4 * PAGE, 4), evict(p, 4 * PAGE);
    EQ(read(pipes[0], p + 100, 2 * PAGE), 2 * PAGE);
    OK(setitimer(ITIMER_REAL, &off, NULL));
    OK(pthread_join(t, NULL)), CHECK(alarms > 0);
    check(p, 100, 4), check(p + 100, 2 * PAGE, 1);
    install(SIGALRM, on_alarm, 0);
    OK(setitimer(ITIMER_REAL, &some, NULL));
    evict(p, 4 * PAGE);
    expect_errno(read(pipes[0], p, 10), EINTR);
    OK(setitimer(ITIMER_REAL, &off, NULL));
    close(pipes[0]), close(pipes[1]), OK(munmap(p, 4 * PAGE));
}
/* The registers a handler sees are those of the instruction that faulted, and may be changed. */
static void skip(int s, siginfo_t *i, void *c) {
    (void)s, (void)i;
    ucontext_t *u = c;
    u->uc_mcontext.gregs[REG_RIP] += 3;
    u->uc_mcontext.gregs[REG_RCX] = 42;
}
static void registers(void) {
    install(SIGSEGV, skip, 0);
    long value = 7;
    /* mov (%rax), %rcx is three bytes long. */
    __asm__ volatile("mov (%%rax), %%rcx" : "+c"(value) : "a"(16L) : "memory");
    EQ(value, 42);
    signal(SIGSEGV, SIG_DFL);
}
int main(void) {
    tmpdir();
    area = fresh(8);
    fill(area, 8 * PAGE, 1), evict(area, 8 * PAGE);
    real_faults();
    sent();
    deaths();
    all_blocked(NULL);
    pthread_t t;
    OK(pthread_create(&t, NULL, all_blocked, NULL)), OK(pthread_join(t, NULL));
    alternate();
    install(SIGUSR1, nested, SA_NODEFER), install(SIGUSR2, nested, SA_NODEFER);
    seen = 0, raise(SIGUSR1), EQ(seen, 20);
    install(SIGUSR1, jump_out, 0);
    volatile int jumps = 0;
    for (volatile int i = 0; i < 100; i++) {
        if (sigsetjmp(fault_jump, 1))
            jumps++;
        else
            raise(SIGUSR1);
        check(area, 8 * PAGE, 1);
    }
    EQ(jumps, 100);
    storm();
    restart();
    registers();
    puts("ok");
    return 0;
}
