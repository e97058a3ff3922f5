/* fork, clone, clone3, wait4, waitid. */
#include "common.h"
#include <linux/sched.h>

static int child(void *p) {
    check(p, 4 * PAGE, 70);
    fill(p, 4 * PAGE, 71);
    evict(p, 4 * PAGE);
    check(p, 4 * PAGE, 71);
    _exit(11);
}
static void test(void) {
    char *p = fresh(4), *stack = fresh(64);
    fill(p, 4 * PAGE, 70);
    pid_t pid;
    for (int way = 0; way < 5; way++) {
        evict(p, 4 * PAGE);
        int *tid = OUT(int), *tid2 = OUT(int);
        if (way == 0)
            pid = fork();
        else if (way == 1)
            pid = syscall(SYS_fork);
        else if (way == 2)
            pid = syscall(SYS_clone, SIGCHLD | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID, 0, tid, tid2, 0);
        else if (way == 3)
            pid = clone(child, stack + 64 * PAGE, SIGCHLD, p);
        else
            pid = syscall(SYS_clone3, ARG(struct clone_args, .flags = CLONE_PARENT_SETTID,
                .parent_tid = (uintptr_t)tid,
                                          .exit_signal = SIGCHLD), sizeof(struct clone_args));
        /* clone3 hides its pointers, so a supervisor may refuse it; every program has another way. */
        if (way == 4 && pid < 0 && errno == ENOSYS) break;
        if (!pid) child(p);
        CHECK(pid > 0);
        if (way == 2 || way == 4) EQ(*tid, pid);
        if (way % 2) {
            int *status = way == 3 ? OLD(int) : OUT(int);
            struct rusage *use = OUT(struct rusage);
            EQ(CALL(wait4, pid, status, 0, use), pid), CHECK(WIFEXITED(*status)), EQ(WEXITSTATUS(*status), 11);
            CHECK(use->ru_maxrss > 0);
        } else {
            siginfo_t *info = way ? OLD(siginfo_t) : OUT(siginfo_t);
            OK(EITHER(waitid(P_PID, pid, info, WEXITED), syscall(SYS_waitid, P_PID, pid, info, WEXITED, NULL)));
            EQ(info->si_pid, pid), EQ(info->si_code, CLD_EXITED), EQ(info->si_status, 11);
        }
        check(p, 4 * PAGE, 70);
    }
    int *status = OUT(int);
    expect_errno(CALL(wait4, -1, status, 0, NULL), ECHILD);
    expect_errno(EITHER(waitid(P_ALL, 0, OUT(siginfo_t), WEXITED),
        syscall(SYS_waitid, P_ALL, 0, OUT(siginfo_t), WEXITED, 0)),
                 ECHILD);
    expect_errno(CALL(wait4, -1, status, 0x40, NULL), EINVAL);
    int pipes[2];
    OK(pipe(pipes));
    if (!(pid = fork())) {
        char c;
        close(pipes[1]);
        _exit(read(pipes[0], &c, 1) == 0 ? 5 : 6);
    }
    EQ(CALL(wait4, pid, OUT(int), WNOHANG, NULL), 0);
    close(pipes[1]);
    /* Peeking with a bad address leaves the child to be waited for. */
    EFAULT_OUT(b, syscall(SYS_waitid, P_PID, pid, b, WEXITED | WNOWAIT, NULL));
    expect_exit(pid, 5);
    close(pipes[0]);
    for (void **b = bad_out(); *b; b++) {
        if (!(pid = fork())) _exit(0);
        expect_errno(CALL(wait4, pid, *b, 0, NULL), EFAULT);
    }
    if (syscall(SYS_clone3, NULL, 0L) != -1 || errno != ENOSYS)
        EFAULT_IN(b, syscall(SYS_clone3, b, sizeof(struct clone_args)));
    munmap(p, 4 * PAGE), munmap(stack, 64 * PAGE);
}
BOTH_WAYS(test)
