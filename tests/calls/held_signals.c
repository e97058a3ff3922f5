/* SIGSEGV, SIGBUS and SIGSYS that are sent while a program has them blocked: it waits for them, asks for them and takes them as it
 * does with any other. */
#include "common.h"
#include <sys/signalfd.h>

static const int special[] = {SIGSEGV, SIGBUS, SIGSYS, SIGUSR1};
enum { KINDS = 4 };
static char *area;
static volatile sig_atomic_t ran, code, value;
static pthread_t first;

static sigset_t only(int s) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, s);
    return set;
}
static sigset_t all_of_them(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < KINDS; i++) sigaddset(&set, special[i]);
    return set;
}
static int is_pending(int s) {
    sigset_t *set = OUT(sigset_t);
    memset(set, 0xff, sizeof *set), evict(set, sizeof *set);
    OK(EITHER(sigpending(set), syscall(SYS_rt_sigpending, set, 8UL)));
    return sigismember(set, s);
}

static void on_signal(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    ran++, code = i->si_code, value = i->si_value.sival_int;
}
static void handle(int s) {
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    OK(sigaction(s, &a, NULL));
}
static void send_it(int how, int s, int n) {
    switch (how) {
    case 0: OK(kill(getpid(), s)); break;
    case 1: OK(raise(s)); break;
    case 2: OK(pthread_kill(pthread_self(), s)); break;
    case 3: OK(sigqueue(getpid(), s, (union sigval){.sival_int = n})); break;
    default: OK(pthread_sigqueue(pthread_self(), s, (union sigval){.sival_int = n}));
    }
}
enum { WAYS = 5 };
static int code_of(int how) {
    return how == 0 ? SI_USER : how < 3 ? SI_TKILL : SI_QUEUE;
}
static void sent_before(int how, int s) {
    sigset_t set = only(s), *in = arg(&set, sizeof set);
    siginfo_t *info = OLD(siginfo_t);
    struct timespec none = {0, 0}, *at_once = arg(&none, sizeof none);
    int got = 0;
    /* Nothing yet. */
    EQ(is_pending(s), 0), expect_errno(sigtimedwait(in, info, at_once), EAGAIN);
    /* Each way to take it. */
    for (int take = 0; take < 5; take++) {
        send_it(how, s, 40 + take), EQ(is_pending(s), 1);
        /* The second one that is the same is none. */
        send_it(how, s, 90);
        evict(in, sizeof *in), evict(info, sizeof *info);
        switch (take) {
        case 0: OK(sigwait(in, &got)), EQ(got, s); break;
        case 1: EQ(sigwaitinfo(in, info), s); break;
        case 2: EQ(sigtimedwait(in, info, at_once), s); break;
        case 3: EQ(sigwaitinfo(in, NULL), s); break;
        default:
            ran = 0;
            OK(pthread_sigmask(SIG_UNBLOCK, &set, NULL)), EQ(ran, 1), EQ(code, code_of(how));
            if (how > 2) EQ(value, 44);
            OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
        }
        if (take == 1 || take == 2) {
            /* The C library makes SI_TKILL SI_USER. */
            EQ(info->si_signo, s), EQ(info->si_code, how < 3 ? SI_USER : SI_QUEUE), EQ(info->si_pid, getpid()), EQ(info->si_uid, getuid());
            if (how > 2) EQ(info->si_value.sival_int, 40 + take);
        }
        EQ(is_pending(s), 0), expect_errno(sigtimedwait(in, info, at_once), EAGAIN);
    }
    /* To be ignored it is gone. */
    send_it(how, s, 7), EQ(is_pending(s), 1);
    signal(s, SIG_IGN), EQ(is_pending(s), 0);
    handle(s), EQ(is_pending(s), 0);
    /* sigpause and sigsuspend let it come. */
    ran = 0, send_it(how, s, 8);
    sigset_t most = all_of_them();
    sigdelset(&most, s);
    expect_errno(sigsuspend(&most), EINTR), EQ(ran, 1), EQ(code, code_of(how)), EQ(is_pending(s), 0);
    send_it(how, s, 9);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    expect_errno(sigpause(s), EINTR), EQ(ran, 2), EQ(is_pending(s), 0);
    OK(sighold(s)), send_it(how, s, 9), EQ(is_pending(s), 1), EQ(ran, 2), OK(sigrelse(s)), EQ(ran, 3), OK(sighold(s));
#pragma GCC diagnostic pop
}
/* Waits first: sent by another thread, by another process. */
static volatile int waiting;
static volatile pid_t waiter_tid;
static void *waiter(void *arg) {
    long s = (long)arg;
    sigset_t set = only((int)s);
    siginfo_t *info = OLD(siginfo_t);
    waiter_tid = (pid_t)syscall(SYS_gettid), waiting = 1;
    int got;
    do got = sigwaitinfo(&set, info);
    while (got < 0 && errno == EINTR);
    EQ(got, s), EQ(info->si_signo, s);
    evict(area, 8 * PAGE), check(area, 8 * PAGE, 1);
    return (void *)(long)info->si_code;
}
static void asleep(pid_t tid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int i = 0; i < 5000 && state != 'S'; i++) {
        usleep(1000);
        FILE *f = fopen(path, "r");
        CHECK(f), EQ(fscanf(f, "%*d %*s %c", &state), 1), fclose(f);
    }
    EQ(state, 'S');
}
static void sent_while_waiting(int how, int s, int late) {
    pthread_t t;
    void *got;
    waiting = 0;
    OK(pthread_create(&t, NULL, waiter, (void *)(long)s));
    while (!waiting) sched_yield();
    if (late) asleep(waiter_tid);
    switch (how) {
    case 0: OK(kill(getpid(), s)); break;
    case 1: OK(pthread_kill(t, s)); break;
    case 2: OK(sigqueue(getpid(), s, (union sigval){.sival_int = 5})); break;
    case 3: OK(pthread_sigqueue(t, s, (union sigval){.sival_int = 5})); break;
    default: {
        pid_t to = getpid();
        expect_exit(CHILD({ _exit(kill(to, s) ? 1 : 6); }), 6);
    }
    }
    OK(pthread_join(t, &got));
    static const int codes[] = {SI_USER, SI_USER, SI_QUEUE, SI_QUEUE, SI_USER};
    EQ((long)got, codes[how]), EQ(is_pending(s), 0);
}
/* A child has none of its parent's, and a thread none of another's. */
static void *sees_none(void *arg) {
    EQ(is_pending((int)(long)arg), 0);
    return arg;
}
static void not_inherited(int s) {
    OK(raise(s)), EQ(is_pending(s), 1);
    expect_exit(CHILD({ EQ(is_pending(s), 0); }), 0);
    pthread_t t;
    OK(pthread_create(&t, NULL, sees_none, (void *)(long)s)), OK(pthread_join(t, NULL));
    sigset_t set = only(s);
    EQ(sigwaitinfo(&set, NULL), s);
    /* What is sent to the process, any of its threads may take. */
    OK(kill(getpid(), s)), EQ(is_pending(s), 1);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    waiting = 0;
    OK(pthread_create(&t, NULL, waiter, (void *)(long)s)), OK(pthread_join(t, NULL)), EQ(is_pending(s), 0);
}
/* Others come while it waits: handlers run, and time runs out. */
static void *sends_usr2(void *arg) {
    asleep(waiter_tid);
    for (int i = 0; i < 3; i++) {
        OK(pthread_kill(first, SIGUSR2));
        while (ran == i) usleep(1000);
    }
    return arg;
}
static void others(int s) {
    sigset_t set = only(s), *in = arg(&set, sizeof set);
    struct timespec soon = {0, 30000000};
    evict(area, 8 * PAGE), expect_errno(sigtimedwait(in, NULL, &soon), EAGAIN), check(area, 8 * PAGE, 1);
    handle(SIGUSR2), ran = 0, waiter_tid = (pid_t)syscall(SYS_gettid);
    pthread_t t;
    OK(pthread_create(&t, NULL, sends_usr2, NULL));
    struct timespec later = {5, 0};
    expect_errno(sigtimedwait(in, NULL, &later), EINTR), CHECK(ran > 0);
    OK(pthread_join(t, NULL)), EQ(ran, 3);
    /* A set of several: all of them come, one after the other. */
    sigset_t every = all_of_them(), seen;
    sigemptyset(&seen);
    for (int i = 0; i < KINDS; i++) OK(raise(special[i]));
    for (int i = 0; i < KINDS; i++) {
        int got = sigwaitinfo(&every, NULL);
        CHECK(got > 0 && !sigismember(&seen, got)), sigaddset(&seen, got);
    }
    struct timespec none = {0, 0};
    expect_errno(sigtimedwait(&every, NULL, &none), EAGAIN);
}
static void errors(int s) {
    sigset_t set = only(s), *in = arg(&set, sizeof set);
    struct timespec none = {0, 0}, bad = {0, 2000000000};
    EFAULT_IN(p, syscall(SYS_rt_sigtimedwait, p, NULL, &none, 8UL));
    EFAULT_IN(p, syscall(SYS_rt_sigtimedwait, in, NULL, p, 8UL));
    expect_errno(syscall(SYS_rt_sigtimedwait, in, NULL, &none, 4UL), EINVAL);
    expect_errno(syscall(SYS_rt_sigtimedwait, in, NULL, &bad, 8UL), EINVAL);
    EFAULT_OUT(p, syscall(SYS_rt_sigpending, p, 8UL));
    expect_errno(syscall(SYS_rt_sigpending, in, 16UL), EINVAL);
    unsigned char few[8];
    memset(few, 0x5a, 8), OK(syscall(SYS_rt_sigpending, few, 4UL)), EQ(few[3], 0), EQ(few[4], 0x5a);
}
int main(void) {
    tmpdir();
    first = pthread_self();
    area = fresh(64), fill(area, 64 * PAGE, 1), evict(area, 64 * PAGE);
    sigset_t all = all_of_them();
    OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    for (int i = 0; i < KINDS; i++) {
        int s = special[i];
        handle(s);
        for (raw_mode = 0; raw_mode < 2; raw_mode++)
            for (int how = 0; how < WAYS; how++) sent_before(how, s);
        raw_mode = 0;
        for (int n = 0; n < 20; n++)
            for (int how = 0; how < 5; how++) sent_while_waiting(how, s, n == 0);
        not_inherited(s), others(s), errors(s);
    }
    puts("ok");
    return 0;
}
