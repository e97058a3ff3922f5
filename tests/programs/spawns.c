/* Starts itself by posix_spawn again and again. In the child a signal that was ignored is ignored still, one with a handler has none, and none
 * is blocked that was not. Between, the dispositions are what was asked for, also of the signals that a pager needs. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { SPAWNS = 50 };
static const int HANDLED[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGSYS, SIGCHLD}, IGNORED[] = {SIGUSR2, SIGHUP, SIGTERM};
#define EACH(list, i) (size_t i = 0; i < sizeof(list) / sizeof *(list); i++)

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);                   \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static volatile int handled;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    handled = signal;
}

static struct sigaction of(int signal) {
    struct sigaction action;
    memset(&action, 0xff, sizeof action);
    CHECK(sigaction(signal, NULL, &action) == 0);
    return action;
}

static int child(void) {
    for EACH(HANDLED, i) CHECK(of(HANDLED[i]).sa_handler == SIG_DFL);
    for EACH(IGNORED, i) CHECK(of(IGNORED[i]).sa_handler == SIG_IGN);
    sigset_t blocked;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
    CHECK(!sigismember(&blocked, SIGUSR1) && sigismember(&blocked, SIGALRM));
    return 0;
}

static void dispositions(void) {
    for EACH(HANDLED, i) {
        struct sigaction action = of(HANDLED[i]);
        CHECK(action.sa_sigaction == handler && action.sa_flags & SA_SIGINFO && action.sa_flags & SA_NODEFER);
        CHECK(!(action.sa_flags & SA_RESTART) && sigismember(&action.sa_mask, SIGALRM) == 1);
        CHECK(!sigismember(&action.sa_mask, SIGVTALRM));
    }
    for EACH(IGNORED, i) CHECK(of(IGNORED[i]).sa_handler == SIG_IGN);
    CHECK(of(SIGWINCH).sa_handler == SIG_DFL);
    errno = 0;
    CHECK(sigaction(SIGKILL, &(struct sigaction){.sa_handler = SIG_IGN}, NULL) == -1 && errno == EINVAL);
    CHECK(sigaction(0, NULL, NULL) == -1 && sigaction(65, NULL, NULL) == -1);
    handled = 0;
    CHECK(raise(SIGUSR1) == 0 && handled == SIGUSR1);
    CHECK(raise(SIGSEGV) == 0 && handled == SIGSEGV);
    CHECK(raise(SIGUSR2) == 0 && handled == SIGSEGV);
}

int main(int argc, char **argv) {
    if (argc > 1) return child();
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    CHECK(sigaddset(&action.sa_mask, SIGALRM) == 0);
    for EACH(HANDLED, i) CHECK(sigaction(HANDLED[i], &action, NULL) == 0);
    for EACH(IGNORED, i) CHECK(signal(IGNORED[i], SIG_IGN) != SIG_ERR);
    sigset_t alarms;
    CHECK(sigemptyset(&alarms) == 0 && sigaddset(&alarms, SIGALRM) == 0 && sigprocmask(SIG_BLOCK, &alarms, NULL) == 0);
    for (int i = 0; i < SPAWNS; i++) {
        char *const arguments[] = {argv[0], "child", NULL};
        pid_t pid;
        int status;
        CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
        while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
        CHECK(status == 0);
        dispositions();
    }
    /* What was there before is told as it is changed, and the default is the default again. */
    struct sigaction old;
    CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, &old) == 0 && old.sa_sigaction == handler);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, &old) == 0 && old.sa_sigaction == handler);
    CHECK(of(SIGBUS).sa_handler == SIG_DFL);
    puts("ok");
    return 0;
}
