/* Signal masks, handlers and alternate stacks that a program sets by instructions of its own, as sanitizers and some languages' libraries do:
 * memory that was evicted comes back all the same, and signals go where the program wants them. */
#include "common.h"
#include "own_call.h"

static long direct(long nr, long a, long b, long c, long d) { return call6(nr, a, b, c, d, 0, 0); }

/* As the kernel has it. */
struct action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};
__asm__(".pushsection .text\nrestore:\n mov $15, %eax\n syscall\n.popsection");
void restore(void);

static volatile int seen;
static char *from, *to;
static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    char here;
    seen = signal;
    CHECK(signal != SIGSEGV || (&here > from && &here < to));
}

int main(void) {
    enum { PAGES = 64 };
    const size_t n = PAGES * PAGE, stack_bytes = 16 * PAGE;
    char *p = fresh(PAGES);
    fill(p, n, 1), evict(p, n), check(p, n, 1);

    uint64_t all = ~0ul, before = 1, now = 0;
    EQ(direct(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&before, 8), 0);
    EQ(before, 0);
    evict(p, n), check(p, n, 1);
    EQ(direct(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, (long)&now, 8), 0);
    EQ(now, ~((1ul << (SIGKILL - 1)) | (1ul << (SIGSTOP - 1))));

    stack_t stack = {.ss_sp = fresh(16), .ss_size = stack_bytes}, old;
    from = stack.ss_sp, to = from + stack_bytes;
    EQ(direct(SYS_sigaltstack, (long)&stack, (long)&old, 0, 0), 0);
    EQ(old.ss_flags, SS_DISABLE);
    static const int signals[] = {SIGSEGV, SIGBUS, SIGSYS, SIGUSR1};
    for (int i = 0; i < 4; i++) {
        struct action action = {on_signal, SA_SIGINFO | 0x04000000 | (i ? 0 : SA_ONSTACK), restore, 0}, was;
        EQ(direct(SYS_rt_sigaction, signals[i], (long)&action, (long)&was, 8), 0);
        EQ(was.handler, NULL);
        EQ(direct(SYS_rt_sigaction, signals[i], 0, (long)&was, 8), 0);
        CHECK(was.handler == on_signal && was.flags == action.flags);
        evict(p, n), check(p, n, 1);
        fill(p, n, 2), evict(p, n), check(p, n, 2), fill(p, n, 1);
        seen = 0;
        EQ(raise(signals[i]), 0);
        EQ(seen, signals[i]);
    }
    puts("ok");
    return 0;
}
