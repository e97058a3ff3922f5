/* A signal that waits for a parent does not wait for its child, also where it is one of those by which the runtime serves faults. */
#include "common.h"

int main(void) {
    char *at = fresh(4);
    fill(at, 4 * PAGE, 1);
    evict(at, 4 * PAGE);
    static const int signals[] = {SIGSEGV, SIGBUS, SIGSYS, SIGUSR1};
    sigset_t all, waits;
    sigemptyset(&all);
    for (int i = 0; i < 4; i++) sigaddset(&all, signals[i]);
    OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    for (int i = 0; i < 4; i++) OK(kill(getpid(), signals[i]));
    pid_t pid = CHILD({
        OK(sigpending(&waits));
        for (int i = 0; i < 4; i++) EQ(sigismember(&waits, signals[i]), 0);
        OK(pthread_sigmask(SIG_UNBLOCK, &all, NULL));
        check(at, 4 * PAGE, 1);
    });
    expect_exit(pid, 0);
    OK(sigpending(&waits));
    for (int i = 0; i < 4; i++) {
        EQ(sigismember(&waits, signals[i]), 1);
        signal(signals[i], SIG_IGN);
    }
    OK(pthread_sigmask(SIG_UNBLOCK, &all, NULL));
    puts("ok");
    return 0;
}
