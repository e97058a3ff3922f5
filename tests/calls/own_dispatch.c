/* Calls by number of the 32-bit kernel (int 0x80), whose numbers mean other calls than those of syscall; and, where the program lies at a fixed
 * address, Syscall User Dispatch of the program's own, and handlers that are left by an rt_sigreturn of its own. */
#include "common.h"
#include "own_call.h"
#include <sys/prctl.h>
#include <ucontext.h>

static long by_interrupt(long nr, long b, long c, long d) {
    long value;
    __asm__ volatile("int $0x80" : "=a"(value) : "a"(nr), "b"(b), "c"(c), "d"(d) : "memory", "r8", "r9", "r10", "r11");
    return value;
}
static long direct(long nr, long a, long b) { return call6(nr, a, b, 0, 0, 0, 0); }

enum { FIXED_END_GIB = 4 };
static volatile char block;
static volatile int told;
static void on_sigsys(int signal, siginfo_t *info, void *context) {
    (void)signal;
    block = 0, told = info->si_syscall;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
}

/* The byte that says whether calls are told lies in memory that is evicted: the kernel reads it by itself. */
static void selector_away(long from, long bytes) {
    char *page = fresh(1);
    *page = 0;
    if (prctl(59, 1, from, bytes, page) != 0) return;
    for (int i = 0; i < 3; i++) {
        evict_some(page, PAGE), pressure(40);
        EQ(direct(SYS_getppid, 0, 0), getppid());
    }
    OK(prctl(59, 0, 0, 0, 0));
    OK(munmap(page, PAGE));
}

static char *evicted;
static volatile int summed;
static void on_usr1(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    /* The context is where the stack pointer is when the kernel is asked to return. */
    check(evicted, 16 * PAGE, 1), summed++;
    __asm__ volatile("mov %0, %%rsp\n mov $15, %%eax\n syscall" ::"r"(context) : "memory");
}

static void raw_return(void) {
    struct sigaction action = {.sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGBUS), sigaddset(&action.sa_mask, SIGSEGV);
    EQ(sigaction(SIGUSR1, &action, NULL), 0);
    for (int i = 1; i <= 3; i++) {
        evict(evicted, 16 * PAGE);
        EQ(raise(SIGUSR1), 0);
        EQ(summed, i);
        evict(evicted, 16 * PAGE), check(evicted, 16 * PAGE, 1);
    }
}

static void interrupts(int status) {
    EQ(status, 0);
    /* read, which is close for syscall: of no bytes, into no memory. */
    int zero = open("/dev/zero", O_RDONLY);
    EQ(by_interrupt(3, zero, 0, 0), 0);
    EQ(fcntl(zero, F_GETFD), 0);
    /* chmod, which is rt_sigreturn for syscall. */
    EQ(by_interrupt(15, 0, 0, 0), -EFAULT);
}

int main(void) {
    evicted = fresh(16);
    fill(evicted, 16 * PAGE, 1), evict(evicted, 16 * PAGE);
    /* A kernel may be without such calls. */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) _exit(by_interrupt(20, 0, 0, 0) != getpid());
    int status;
    EQ(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status)) interrupts(status);
    check(evicted, 16 * PAGE, 1);
    if ((uintptr_t)main >> 30 < FIXED_END_GIB) {
        raw_return();
        struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO}, before;
        EQ(sigaction(SIGSYS, &action, &before), 0);
        const unsigned long from = (unsigned long)FIXED_END_GIB << 30;
        /* Where a sandbox knows no such option there is nothing to see. */
        if (prctl(59, 1, from, (1UL << 47) - from, &block) == 0) {
            EQ(direct(SYS_getppid, 0, 0), getppid());
            block = 1;
            EQ(direct(SYS_getppid, 0, 0), 4242);
            EQ(told, SYS_getppid);
            evict(evicted, 16 * PAGE), check(evicted, 16 * PAGE, 1);
            EQ(prctl(59, 0, 0, 0, 0), 0);
            EQ(direct(SYS_getppid, 0, 0), getppid());
            selector_away(from, (1UL << 47) - from);
        }
        EQ(sigaction(SIGSYS, &before, NULL), 0);
    }
    puts("ok");
    return 0;
}
