/* poll and ppoll. */
#include "common.h"

/* The kernel counts a timeout down in place; libc works on a copy. */
static long do_ppoll(struct pollfd *p, int n, struct timespec *t, const sigset_t *mask) {
    return EITHER(ppoll(p, n, t, mask), syscall(SYS_ppoll, p, n, t, mask, 8));
}
static volatile sig_atomic_t alarms;
static void on_alarm(int s) { (void)s, alarms++; }
static void *write_later(void *fd) {
    usleep(20000);
    write_all(*(int *)fd, "x", 1);
    return NULL;
}
static void test(void) {
    enum { MANY = 1500 };
    int pipes[2];
    OK(pipe(pipes));
    struct pollfd *p = place(MANY * sizeof *p, 8);
    for (int i = 0; i < MANY; i++) p[i] = (struct pollfd){-1, POLLIN, 0};
    p[0].fd = p[MANY - 1].fd = pipes[0];
    evict(p, MANY * sizeof *p);
    EQ(CALL(poll, p, MANY, 1), 0);
    evict(p, MANY * sizeof *p);
    EQ(do_ppoll(p, MANY, ARG(struct timespec, 0, 1000000), NULL), 0);
    EQ(write(pipes[1], "x", 1), 1);
    evict(p, MANY * sizeof *p);
    EQ(CALL(poll, p, MANY, -1), 2);
    EQ(p[0].revents, POLLIN), EQ(p[MANY - 1].revents, POLLIN), EQ(p[7].revents, 0);
    p[0].revents = p[MANY - 1].revents = 0;
    evict(p, MANY * sizeof *p);
    sigset_t empty;
    sigemptyset(&empty);
    EQ(do_ppoll(p, MANY, NULL, arg(&empty, sizeof empty)), 2);
    EQ(p[MANY - 1].revents, POLLIN);
    p[3].fd = 999;
    EQ(CALL(poll, p, 5, 0), 2), EQ(p[3].revents, POLLNVAL);

    EFAULT_IN(b, CALL(poll, b, 1, 0));
    EFAULT_IN(b, do_ppoll(b, 1, NULL, NULL));
    EFAULT_EDGE(b, CALL(poll, b, 1, 0));
    EFAULT_IN(b, syscall(SYS_ppoll, p, 1, b, NULL, 8));
    EFAULT_IN(b, syscall(SYS_ppoll, p, 1, NULL, b, 8));
    EQ(CALL(poll, bad_in()[1], 0, 0), 0);
    expect_errno(do_ppoll(p, 1, ARG(struct timespec, 0, -1), NULL), EINVAL);
    expect_errno(CALL(poll, p, 1L << 31, 0), EINVAL);

    /* Pages out while the call sleeps, the answer lands in them all the same. */
    char c;
    EQ(read(pipes[0], &c, 1), 1);
    pthread_t t;
    p[0].revents = 0;
    OK(pthread_create(&t, NULL, write_later, pipes + 1));
    evict(p, MANY * sizeof *p);
    EQ(CALL(poll, p, 1, 5000), 1), EQ(p[0].revents, POLLIN);
    OK(pthread_join(t, NULL));
    EQ(read(pipes[0], &c, 1), 1);

    /* A signal that only the waiting mask lets through ends the wait. */
    struct sigaction a = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &a, NULL);
    sigset_t block;
    sigemptyset(&block), sigaddset(&block, SIGALRM);
    OK(sigprocmask(SIG_BLOCK, &block, NULL));
    alarms = 0;
    raise(SIGALRM);
    EQ(alarms, 0);
    expect_errno(do_ppoll(p, 1, ARG(struct timespec, 5, 0), arg(&empty, sizeof empty)), EINTR);
    EQ(alarms, 1);
    OK(sigprocmask(SIG_UNBLOCK, &block, NULL));
    close(pipes[0]), close(pipes[1]);
}
BOTH_WAYS(test)
