/* What sigaltstack refuses and tells, stacks that disarm themselves, and signals whose alternate stack cannot be written. */
#include "common.h"
#include <setjmp.h>

static char *area, *stack;
static volatile sig_atomic_t ran, outside;
static sigjmp_buf back;

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
enum { BYTES = 64 << 10 };

static int on(void *p) { return (char *)p > stack && (char *)p <= stack + BYTES; }
static stack_t now(void) {
    stack_t s;
    OK(sigaltstack(NULL, &s));
    return s;
}
static void set(void *sp, size_t size, unsigned flags) {
    stack_t s = {.ss_sp = sp, .ss_size = size, .ss_flags = (int)flags};
    OK(CALL(sigaltstack, &s, NULL));
}
static void refused(void *sp, size_t size, unsigned flags, int error) {
    stack_t s = {.ss_sp = sp, .ss_size = size, .ss_flags = (int)flags}, before = now(), old;
    memset(&old, 0x5a, sizeof old);
    expect_errno(CALL(sigaltstack, &s, &old), error);
    stack_t after = now();
    CHECK(after.ss_sp == before.ss_sp && after.ss_size == before.ss_size && after.ss_flags == before.ss_flags);
    /* Of a call that fails nothing is told. */
    EQ(old.ss_size, (size_t)0x5a5a5a5a5a5a5a5a);
}
static void on_usr1(int s) {
    char here;
    (void)s;
    CHECK(on(&here));
    EQ(now().ss_flags, SS_ONSTACK);
    refused(stack, BYTES, 0, EPERM), refused(NULL, 0, SS_DISABLE, EPERM), refused(stack, BYTES, 4, EPERM);
    refused(stack, 100, 0, EPERM);
    ran++;
}
static void on_usr2(int s) {
    char here;
    (void)s;
    /* Disarmed while the handler runs: another one may be set, and goes when the handler returns. */
    CHECK(on(&here));
    stack_t at = now();
    EQ(at.ss_flags, SS_DISABLE), EQ(at.ss_size, 0), EQ(at.ss_sp, 0);
    set(area, BYTES, 0), EQ(now().ss_flags, 0);
    ran++;
}
static void rules(void) {
    set(NULL, 0, SS_DISABLE);
    refused(stack, BYTES, 3, EINVAL), refused(stack, BYTES, 4, EINVAL), refused(stack, BYTES, 1 << 30, EINVAL);
    refused(stack, BYTES, SS_AUTODISARM | 4, EINVAL), refused(stack, 100, 4, EINVAL);
    refused(stack, 0, 0, ENOMEM), refused(stack, 2047, 0, ENOMEM), refused(stack, 2047, SS_ONSTACK, ENOMEM);
    refused(stack, 100, SS_AUTODISARM, ENOMEM);
    EQ(now().ss_flags, SS_DISABLE), EQ(now().ss_size, 0);
    set(stack, BYTES, SS_ONSTACK), EQ(now().ss_flags, 0), CHECK(now().ss_sp == stack && now().ss_size == BYTES);
    refused(area, 2047, 0, ENOMEM), refused(area, BYTES, 8, EINVAL);
    int before = ran;
    OK(raise(SIGUSR1)), EQ(ran, before + 1);
    set(stack, BYTES, SS_AUTODISARM);
    EQ(now().ss_flags, (int)SS_AUTODISARM), CHECK(now().ss_sp == stack);
    OK(raise(SIGUSR2)), EQ(ran, before + 2);
    CHECK(now().ss_sp == stack && now().ss_size == BYTES), EQ(now().ss_flags, (int)SS_AUTODISARM);
    set(stack, BYTES, SS_DISABLE | SS_AUTODISARM);
    stack_t off = now();
    EQ(off.ss_flags, (int)(SS_DISABLE | SS_AUTODISARM)), EQ(off.ss_size, 0), EQ(off.ss_sp, 0);
    set(stack, 17, SS_DISABLE), EQ(now().ss_flags, SS_DISABLE), EQ(now().ss_size, 0);
    EFAULT_IN(p, CALL(sigaltstack, p, NULL));
    EFAULT_EDGE(p, CALL(sigaltstack, p, NULL));
    EFAULT_OUT(p, CALL(sigaltstack, NULL, p));
    EQ(now().ss_flags, SS_DISABLE);
}
static void nothing(int s) { (void)s, ran++; }
/* What one that never had a stack sets in a handler stays, and so it is lost where there had been one. Every signal disarms. */
static void on_first(int s) { (void)s, set(stack, BYTES, 0), ran++; }
static void on_any(int s) {
    (void)s;
    EQ(now().ss_size, 0), EQ(now().ss_flags, SS_DISABLE);
    ran++;
}
static void handle(int signal, int flags, void (*f)(int)) {
    struct sigaction a = {.sa_handler = f, .sa_flags = flags};
    OK(sigaction(signal, &a, NULL));
}
/* How a child ends to which a signal comes for whose frame there is no room. */
static void ends(const char *what, void *sp, size_t size, int segv_flags, int segv_handled, int with_thread) {
    (void)what;
    pid_t pid = CHILD({
        struct rlimit none = {0, 0};
        OK(setrlimit(RLIMIT_CORE, &none));
        handle(SIGUSR1, SA_ONSTACK, nothing);
        handle(SIGSEGV, segv_flags, segv_handled ? nothing : SIG_DFL);
        set(sp, size, 0);
        if (with_thread) evict(area, BYTES);
        raise(SIGUSR1);
        /* Only a handler of SIGSEGV that has another stack comes back. */
        _exit(ran == 1 ? 7 : 8);
    });
    int status;
    EQ(waitpid(pid, &status, 0), pid);
    if (segv_handled && !(segv_flags & SA_ONSTACK))
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    else
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
static void jump(int s) {
    (void)s, outside++;
    siglongjmp(back, 1);
}
static void bad_stacks(void) {
    char *read_only[6], *gone = guarded(1) + HOLE / 2;
    read_only[0] = fresh(BYTES / PAGE);
    read_only[1] = fresh(BYTES / PAGE), fill(read_only[1], BYTES, 3), evict(read_only[1], BYTES);
    read_only[2] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    read_only[3] = fresh(BYTES / PAGE), fill(read_only[3], BYTES, 3);
    for (int i = 0; i < 3; i++) OK(mprotect(read_only[i], BYTES, PROT_READ));
    OK(mprotect(read_only[3], BYTES, PROT_NONE));
    read_only[4] = gone;
    /* A file that ends before. */
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    read_only[5] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(read_only[5] != MAP_FAILED);
    for (int i = 0; i < 6; i++) {
        ran = 0;
        for (int evicted = 0; evicted < 2; evicted++) {
            ends("default", read_only[i], BYTES, 0, 0, evicted), ends("handled", read_only[i], BYTES, 0, 1, evicted);
            ends("on it too", read_only[i], BYTES, SA_ONSTACK, 1, evicted);
        }
    }
    /* Its upper end alone can be written. */
    char *part = fresh(32);
    OK(mprotect(part, 31 * PAGE, PROT_READ)), part[32 * PAGE - 1] = 1;
    handle(SIGUSR1, SA_ONSTACK, nothing), handle(SIGSEGV, 0, jump);
    int before = ran;
    set(part, 32 * PAGE, 0), OK(raise(SIGUSR1)), EQ(ran, before + 1);
    /* A fault whose handler has no stack to run on. */
    for (int i = 0; i < 6; i++) {
        pid_t pid = CHILD({
            struct rlimit none = {0, 0};
            OK(setrlimit(RLIMIT_CORE, &none));
            handle(SIGSEGV, SA_ONSTACK, nothing), set(read_only[i], BYTES, 0);
            *(volatile char *)read_only[0] = 1;
        });
        int status;
        EQ(waitpid(pid, &status, 0), pid), CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        /* And one whose handler leaves. */
        set(read_only[i], BYTES, 0);
        before = outside;
        if (!sigsetjmp(back, 1)) raise(SIGUSR1);
        EQ(outside, before + 1);
    }
    set(NULL, 0, SS_DISABLE);
    check(read_only[1], BYTES, 3);
    OK(mprotect(read_only[3], BYTES, PROT_READ)), check(read_only[3], BYTES, 3);
}
static void *both(void *arg) {
    handle(SIGUSR1, SA_ONSTACK, on_usr1), handle(SIGUSR2, SA_ONSTACK, on_usr2);
    for (raw_mode = 0; raw_mode < 2; raw_mode++) rules();
    raw_mode = 0;
    return arg;
}
/* In the first thread, before anything else. */
static void first(void) {
    stack = fresh(BYTES / PAGE);
    handle(SIGUSR1, 0, on_first);
    OK(raise(SIGUSR1)), EQ(ran, 1);
    CHECK(now().ss_sp == stack && now().ss_size == BYTES);
    set(NULL, 0, SS_DISABLE);
    OK(raise(SIGUSR1)), EQ(ran, 2);
    EQ(now().ss_size, 0), EQ(now().ss_flags, SS_DISABLE);
    set(stack, BYTES, SS_AUTODISARM);
    handle(SIGUSR1, 0, on_any);
    OK(raise(SIGUSR1)), EQ(ran, 3);
    CHECK(now().ss_sp == stack && now().ss_size == BYTES), EQ(now().ss_flags, (int)SS_AUTODISARM);
    set(NULL, 0, SS_DISABLE);
}
int main(void) {
    tmpdir();
    first();
    for (int managed = 0; managed < 2; managed++) {
        area = fresh(BYTES / PAGE), fill(area, BYTES, 1), evict(area, BYTES);
        stack = managed ? fresh(BYTES / PAGE) : mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        CHECK(stack != MAP_FAILED);
        both(NULL);
        pthread_t t;
        OK(pthread_create(&t, NULL, both, NULL)), OK(pthread_join(t, NULL));
    }
    bad_stacks();
    puts("ok");
    return 0;
}
