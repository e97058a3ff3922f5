/* Calls that wait with a mask of their own: a signal that it blocks neither ends them nor is taken in with it, whenever it comes. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/select.h>

static volatile int ticks, asked;
static sigset_t seen;

static void on_tick(int signal) {
    (void)signal;
    ticks++;
}
static void on_asked(int signal) {
    (void)signal;
    asked++;
    sigprocmask(SIG_BLOCK, NULL, &seen);
}

/* One that comes while the call waits, and is blocked then, is taken in after it, with the mask of the caller. */
static void after(int which) {
    int ends[2], polled = epoll_create1(0);
    OK(pipe(ends));
    struct epoll_event event = {.events = EPOLLIN};
    OK(epoll_ctl(polled, EPOLL_CTL_ADD, ends[0], &event));
    char *at = fresh(8);
    sigset_t *mask = (sigset_t *)at;
    sigemptyset(mask);
    sigaddset(mask, SIGUSR2);
    struct pollfd *waits = (struct pollfd *)(at + 2 * PAGE);
    *waits = (struct pollfd){.fd = ends[0], .events = POLLIN};
    fd_set *set = (fd_set *)(at + 4 * PAGE);
    FD_ZERO(set);
    FD_SET(ends[0], set);
    struct epoll_event *events = (struct epoll_event *)(at + 6 * PAGE);
    events->events = 0;
    evict(at, 8 * PAGE);
    asked = 0;
    pid_t me = getpid(), child = fork();
    if (child == 0) {
        sleep_ms(100);
        kill(me, SIGUSR2);
        sleep_ms(100);
        _exit(write(ends[1], "x", 1) != 1);
    }
    struct timespec end = {.tv_sec = 60};
    int came = which == 0 ? ppoll(waits, 1, &end, mask)
               : which == 1 ? pselect(ends[0] + 1, set, NULL, NULL, &end, mask)
                            : epoll_pwait(polled, events, 1, 60000, mask);
    EQ(came, 1);
    EQ(asked, 1);
    EQ(sigismember(&seen, SIGUSR1), 1);
    EQ(sigismember(&seen, SIGUSR2), 1);
    int status;
    EQ(waitpid(child, &status, 0), child);
    EQ(status, 0);
    OK(close(ends[0]) | close(ends[1]) | close(polled));
    OK(munmap(at, 8 * PAGE));
}

/* Signals that the runtime needs itself: also one that the call's mask blocks is taken in, at the latest when the call is over. */
static void ours(void) {
    static const int signals[] = {SIGBUS, SIGSEGV, SIGSYS};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        for (int how = 0; how < 2; how++) {
            sigset_t mask;
            sigemptyset(&mask);
            sigaddset(&mask, signals[i]);
            struct sigaction ask = {.sa_handler = on_asked};
            OK(sigaction(signals[i], &ask, NULL));
            asked = 0;
            pid_t me = getpid(), child = fork();
            if (child == 0) {
                sleep_ms(50);
                _exit(how ? sigqueue(me, signals[i], (union sigval){.sival_int = 1}) != 0 : kill(me, signals[i]) != 0);
            }
            struct timespec end = {.tv_nsec = 200000000};
            int came = ppoll(NULL, 0, &end, &mask);
            CHECK(came == 0 || errno == EINTR);
            EQ(asked, 1);
            expect_exit(child, 0);
            struct sigaction none = {.sa_handler = SIG_DFL};
            OK(sigaction(signals[i], &none, NULL));
        }
    }
}

int main(void) {
    struct sigaction tick = {.sa_handler = on_tick}, ask = {.sa_handler = on_asked};
    OK(sigaction(SIGALRM, &tick, NULL));
    OK(sigaction(SIGUSR1, &ask, NULL));
    OK(sigaction(SIGUSR2, &ask, NULL));
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &mask, NULL));
    for (int which = 0; which < 3; which++) after(which);
    ours();

    /* Signals that come all the time, of which many come just before such a call. */
    struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
    OK(setitimer(ITIMER_REAL, &often, NULL));
    sigset_t *all = (sigset_t *)fresh(1);
    sigfillset(all);
    for (int64_t end_ns = now_ns() + 500000000; now_ns() < end_ns;) {
        EQ(ppoll(NULL, 0, &(struct timespec){.tv_nsec = 1000}, all), 0);
        EQ(pselect(0, NULL, NULL, NULL, &(struct timespec){.tv_nsec = 1000}, all), 0);
    }
    sigset_t but_one;
    sigfillset(&but_one);
    sigdelset(&but_one, SIGUSR1);
    for (int64_t end_ns = now_ns() + 500000000; now_ns() < end_ns;) {
        asked = 0;
        OK(raise(SIGUSR1));
        EQ(asked, 0);
        EQ(sigsuspend(&but_one), -1);
        EQ(asked, 1);
    }
    OK(setitimer(ITIMER_REAL, &never, NULL));
    CHECK(ticks > 0);
    puts("ok");
    return 0;
}
