/* A fault at a blocked signal is death, whatever raised it: an address, the end of a file, and a filter of the program's own. And what a
 * handler has changed of the alternate stack is undone when it returns, a bad place for an old mask is an error. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static void block_all(void) {
    sigset_t all;
    OK(sigfillset(&all)), OK(pthread_sigmask(SIG_SETMASK, &all, NULL));
}
static void traps(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)), OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    block_all();
    syscall(SYS_getpgid, 0);
    _exit(1);
}
static void faults(void) {
    block_all();
    *(volatile int *)(PAGE - minus_one) = 1;
    _exit(1);
}
static void ends(void) {
    int fd = open("empty", O_RDWR | O_CREAT, 0600);
    volatile char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    block_all();
    *p = 1;
    _exit(1);
}
static char stacks[2][64 << 10];
static void other_stack(int signal) {
    (void)signal;
    stack_t other = {.ss_sp = stacks[1], .ss_size = sizeof stacks[1]};
    OK(sigaltstack(&other, NULL));
}
static void altstack_comes_back(void) {
    stack_t stack = {.ss_sp = stacks[0], .ss_size = sizeof stacks[0]}, now;
    OK(sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_handler = other_stack};
    OK(sigaction(SIGUSR1, &action, NULL)), OK(raise(SIGUSR1));
    OK(sigaltstack(NULL, &now));
    CHECK(now.ss_sp == stacks[0] && now.ss_size == sizeof stacks[0] && now.ss_flags == 0);
}
/* Through the C library, and of memory that is there, is not, or must not be written to. */
static void old_masks(void) {
    sigset_t set, old;
    OK(sigemptyset(&set));
    EQ(pthread_sigmask(SIG_BLOCK, &set, (sigset_t *)8), EFAULT);
    char *page = fresh(2);
    page[PAGE] = 1;
    OK(mprotect(page, PAGE, PROT_READ));
    EQ(pthread_sigmask(SIG_BLOCK, &set, (sigset_t *)page), EFAULT);
    sigset_t *at = (sigset_t *)(page + PAGE);
    OK(sigaddset(&set, SIGBUS)), OK(sigaddset(&set, SIGUSR2));
    for (int i = 0; i < 3; i++) {
        evict_some(page + PAGE, PAGE);
        OK(pthread_sigmask(SIG_BLOCK, &set, at));
        EQ(sigismember(at, SIGBUS), i > 0), EQ(sigismember(at, SIGUSR2), i > 0);
    }
    OK(pthread_sigmask(SIG_UNBLOCK, &set, &old));
    CHECK(sigismember(&old, SIGBUS) && sigismember(&old, SIGUSR2));
}
int main(void) {
    tmpdir();
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_CORE, &none));
    expect_signal(CHILD(traps()), SIGSYS);
    expect_signal(CHILD(faults()), SIGSEGV);
    expect_signal(CHILD(ends()), SIGBUS);
    altstack_comes_back();
    old_masks();
    puts("ok");
    return 0;
}
