/* rt_sigaction, rt_sigprocmask, rt_sigpending, rt_sigtimedwait, rt_sigsuspend, rt_sigqueueinfo, signalfd4,
 * sigaltstack. */
#include "common.h"
#include <sys/signalfd.h>

static volatile sig_atomic_t got, value;
static void on_signal(int s, siginfo_t *i, void *c) { (void)c, got = s, value = i->si_value.sival_int; }

static sigset_t *set(int a, int b) {
    sigset_t s;
    sigemptyset(&s);
    if (a) sigaddset(&s, a);
    if (b) sigaddset(&s, b);
    return arg(&s, sizeof s);
}
static long do_mask(int how, const sigset_t *s, sigset_t *old) {
    return EITHER(sigprocmask(how, s, old), syscall(SYS_rt_sigprocmask, how, s, old, 8));
}
static void test(void) {
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO}, *old = OUT(struct sigaction);
    OK(sigaction(SIGUSR1, arg(&a, sizeof a), old)), OK(sigaction(SIGUSR2, arg(&a, sizeof a), NULL));
    old = OLD(struct sigaction);
    OK(sigaction(SIGUSR1, NULL, old)), CHECK(old->sa_sigaction == on_signal);
    EFAULT_IN(p, syscall(SYS_rt_sigaction, SIGUSR1, p, NULL, 8));
    EFAULT_OUT(p, syscall(SYS_rt_sigaction, SIGUSR1, NULL, p, 8));
    expect_errno(sigaction(SIGKILL, arg(&a, sizeof a), NULL), EINVAL);
    expect_errno(sigaction(99, NULL, old), EINVAL);
    raise(SIGUSR1), EQ(got, SIGUSR1);

    sigset_t *before = place(sizeof *before, 8);
    OK(do_mask(SIG_BLOCK, set(SIGUSR1, SIGUSR2), before)), EQ(sigismember(before, SIGUSR1), 0);
    sigset_t *now = place(sizeof *now, 8);
    memset(now, 0, sizeof *now), evict(now, sizeof *now);
    OK(do_mask(SIG_SETMASK, NULL, now)), EQ(sigismember(now, SIGUSR1), 1), EQ(sigismember(now, SIGALRM), 0);
    got = 0, raise(SIGUSR1), EQ(got, 0);
    memset(now, 0, sizeof *now), evict(now, sizeof *now);
    OK(EITHER(sigpending(now), syscall(SYS_rt_sigpending, now, 8))), EQ(sigismember(now, SIGUSR1), 1);
    siginfo_t *info = OUT(siginfo_t);
    EQ(EITHER(sigtimedwait(set(SIGUSR1, 0), info, ARG(struct timespec, 5, 0)),
              syscall(SYS_rt_sigtimedwait, set(SIGUSR1, 0), info, ARG(struct timespec, 5, 0), 8)),
       SIGUSR1);
    EQ(info->si_signo, SIGUSR1), EQ(info->si_pid, getpid());
    expect_errno(EITHER(sigtimedwait(set(SIGUSR1, 0), info, ARG(struct timespec, 0, 1000)),
                        syscall(SYS_rt_sigtimedwait, set(SIGUSR1, 0), info, ARG(struct timespec, 0, 1000), 8)),
                 EAGAIN);
    siginfo_t queued = {.si_signo = SIGUSR2, .si_code = SI_QUEUE, .si_pid = getpid(), .si_uid = getuid()};
    queued.si_value.sival_int = 1234;
    OK(raw_mode ? syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, arg(&queued, sizeof queued))
                : sigqueue(getpid(), SIGUSR2, queued.si_value));
    info = OLD(siginfo_t);
    EQ(EITHER(sigwaitinfo(set(SIGUSR2, 0), info), syscall(SYS_rt_sigtimedwait, set(SIGUSR2, 0), info, NULL, 8)),
        SIGUSR2);
    EQ(info->si_value.sival_int, 1234), EQ(info->si_code, SI_QUEUE);
    OK(raw_mode ? syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGUSR2, arg(&queued, sizeof queued))
                : pthread_sigqueue(pthread_self(), SIGUSR2, queued.si_value));
    int *one = OUT(int);
    OK(sigwait(set(SIGUSR2, SIGUSR1), one)), EQ(*one, SIGUSR2);
    raise(SIGUSR2), got = 0;
    expect_errno(EITHER(sigsuspend(set(SIGUSR1, 0)), syscall(SYS_rt_sigsuspend, set(SIGUSR1, 0), 8)), EINTR);
    EQ(got, SIGUSR2);

    int fd = EITHER(signalfd(-1, set(SIGUSR1, 0), 0), syscall(SYS_signalfd4, -1, set(SIGUSR1, 0), 8, 0));
    CHECK(fd >= 0);
    queued.si_signo = SIGUSR1;
    OK(sigqueue(getpid(), SIGUSR1, queued.si_value));
    struct signalfd_siginfo *s = OUT(struct signalfd_siginfo);
    EQ(CALL(read, fd, s, sizeof *s), sizeof *s), EQ(s->ssi_signo, SIGUSR1), EQ(s->ssi_int, 1234);
    EFAULT_IN(p, syscall(SYS_signalfd4, fd, p, 8, 0));
    expect_errno(syscall(SYS_signalfd4, 1000, set(SIGUSR1, 0), 8, 0), EBADF);
    EFAULT_IN(p, syscall(SYS_rt_sigprocmask, SIG_BLOCK, p, NULL, 8));
    EFAULT_OUT(p, syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, p, 8));
    EFAULT_OUT(p, syscall(SYS_rt_sigpending, p, 8));
    EFAULT_IN(p, syscall(SYS_rt_sigtimedwait, p, info, NULL, 8));
    EFAULT_IN(p, syscall(SYS_rt_sigtimedwait, set(SIGUSR1, 0), info, p, 8));
    EFAULT_IN(p, syscall(SYS_rt_sigsuspend, p, 8));
    EFAULT_IN(p, syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, p));
    expect_errno(syscall(SYS_rt_sigprocmask, SIG_BLOCK, set(SIGUSR1, 0), NULL, 16), EINVAL);
    expect_errno(do_mask(77, set(SIGUSR1, 0), NULL), EINVAL);
    OK(do_mask(SIG_SETMASK, before, NULL));
    close(fd);

    /* Signals that the runtime needs for itself wait here when they are blocked, and are seen and taken as others are. */
    static const int KEPT[] = {SIGBUS, SIGSEGV, SIGSYS};
    for (int i = 0; i < 3; i++) {
        OK(do_mask(SIG_BLOCK, set(KEPT[i], 0), NULL));
        for (int own = 0; own < 2; own++) {
            if (own)
                OK(raise(KEPT[i]));
            else
                OK(kill(getpid(), KEPT[i]));
            sigset_t *there = OUT(sigset_t);
            OK(EITHER(sigpending(there), syscall(SYS_rt_sigpending, there, 8))), EQ(sigismember(there, KEPT[i]), 1);
            EQ(sigismember(there, SIGUSR1), 0);
            siginfo_t *of = OUT(siginfo_t);
            EQ(EITHER(sigwaitinfo(set(KEPT[i], SIGUSR1), of),
                      syscall(SYS_rt_sigtimedwait, set(KEPT[i], SIGUSR1), of, NULL, 8)), KEPT[i]);
            /* The C library calls both codes SI_USER. */
            CHECK(of->si_code == SI_USER || (own && of->si_code == SI_TKILL));
            EQ(of->si_signo, KEPT[i]), EQ(of->si_pid, getpid());
            there = OUT(sigset_t);
            OK(EITHER(sigpending(there), syscall(SYS_rt_sigpending, there, 8))), EQ(sigismember(there, KEPT[i]), 0);
            expect_errno(sigtimedwait(set(KEPT[i], 0), NULL, ARG(struct timespec, 0, 0)), EAGAIN);
        }
        OK(do_mask(SIG_UNBLOCK, set(KEPT[i], 0), NULL));
    }

    char *stack = fresh(16);
    stack_t *to = ARG(stack_t, .ss_sp = stack, .ss_size = 16 * PAGE), *was = OUT(stack_t);
    OK(CALL(sigaltstack, to, was)), CHECK(was->ss_flags & SS_DISABLE);
    was = OLD(stack_t);
    OK(CALL(sigaltstack, NULL, was)), CHECK(was->ss_sp == stack), EQ(was->ss_size, 16 * PAGE);
    EFAULT_IN(p, CALL(sigaltstack, p, NULL));
    EFAULT_OUT(p, CALL(sigaltstack, NULL, p));
    expect_errno(CALL(sigaltstack, ARG(stack_t, .ss_sp = stack, .ss_size = 100), NULL), ENOMEM);
    expect_errno(CALL(sigaltstack, ARG(stack_t, .ss_sp = stack, .ss_flags = 64, .ss_size = 1 << 16), NULL), EINVAL);
    OK(CALL(sigaltstack, ARG(stack_t, .ss_flags = SS_DISABLE), NULL));
    munmap(stack, 16 * PAGE);
}
BOTH_WAYS(test)
