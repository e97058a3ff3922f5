/* A library in front of the C library's functions by which `outswap` starts a program, for moments that are else too short to be met: in the one that
 * `SLOW` names, `MARK` is made, and nothing happens for a while; and SIGCONT comes in front of a stop that a process sends itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_US = 500000 };

static void wait_in(const char *name) {
    const char *slow = getenv("SLOW"), *mark = getenv("MARK");
    if (slow == NULL || mark == NULL || strcmp(slow, name) != 0)
        return;
    int fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    close(fd);
    usleep(WAIT_US);
}

int execve(const char *path, char *const argv[], char *const envp[]) {
    int (*next)(const char *, char *const *, char *const *) = (int (*)(const char *, char *const *, char *const *))dlsym(RTLD_NEXT, "execve");
    wait_in("execve");
    return next(path, argv, envp);
}

pid_t fork(void) {
    pid_t (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    sigset_t blocked;
    /* Processes that try whether all goes well are made with signals as they were. */
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGINT))
        wait_in("fork");
    return next();
}

int raise(int signal) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "raise");
    const char *slow = getenv("SLOW");
    if (signal == SIGTSTP && slow != NULL && strcmp(slow, "raise") == 0)
        kill(getpid(), SIGCONT);
    return next(signal);
}
