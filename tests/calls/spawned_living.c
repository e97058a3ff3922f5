/* More programs that live on than there are buffers for what they are executed with, each started in this process's memory (posix_spawn),
 * and none that anybody may look at. */
#include "common.h"
#include <spawn.h>
#include <sys/prctl.h>

enum { CHILDREN = 24 };
extern char **environ;

int main(int argc, char **argv) {
    char self[PATH_MAX], c;
    if (argc == 2) {
        OK(prctl(PR_SET_DUMPABLE, 0));
        EQ(write(1, "r", 1), 1);
        EQ(read(0, &c, 1), 0);
        return 9;
    }
    CHECK(realpath("/proc/self/exe", self));
    char *p = fresh(64);
    noise(p, 64 * PAGE, 1), evict(p, 64 * PAGE);
    pid_t pids[CHILDREN];
    int in[2], out[2];
    OK(pipe2(in, O_CLOEXEC)), OK(pipe2(out, O_CLOEXEC));
    posix_spawn_file_actions_t actions;
    OK(posix_spawn_file_actions_init(&actions));
    OK(posix_spawn_file_actions_adddup2(&actions, in[0], 0)), OK(posix_spawn_file_actions_adddup2(&actions, out[1], 1));
    char *arguments[] = {argv[0], "child", NULL};
    for (int i = 0; i < CHILDREN; i++) {
        EQ(posix_spawn(&pids[i], self, &actions, NULL, arguments, environ), 0);
        EQ(read(out[0], &c, 1), 1);
    }
    close(in[1]);
    for (int i = 0; i < CHILDREN; i++) expect_exit(pids[i], 9);
    check_noise(p, 64 * PAGE, 1);
    puts("ok");
    return 0;
}
