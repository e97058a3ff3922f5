/* Children that share the memory until they execute a program, and have the kernel note their number where the caller says: what
 * they needed for their exec is free once they are through, while the programs run. */
#include "common.h"

enum { CHILDREN = 40 };
static char stack[64 << 10] __attribute__((aligned(16)));

static int child(void *path) {
    char *argv[] = {path, "60", NULL}, *env[] = {NULL};
    execve(path, argv, env);
    _exit(3);
}
int main(void) {
    tmpdir();
    alarm(20);
    pid_t pids[CHILDREN], noted[2];
    char *sleeps = str("/bin/sleep");
    for (int i = 0; i < CHILDREN; i++) {
        int flags = CLONE_VM | CLONE_VFORK | (i % 2 ? 0 : CLONE_CHILD_SETTID) | CLONE_CHILD_CLEARTID | SIGCHLD;
        pids[i] = clone(child, stack + sizeof stack, flags, sleeps, &noted[0], NULL, &noted[1]);
        CHECK(pids[i] > 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        OK(kill(pids[i], SIGKILL));
        EQ(waitpid(pids[i], &status, 0), pids[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    puts("ok");
    return 0;
}
