/* Children fill so many MiB each. Each is the first of a pid namespace, and so has the number 1; but with `inherit` this program is in one, or its
 * children are. What else becomes of them:
 *   hold     they hold what they have until all have it
 *   kill     the same, and every second one is killed
 *   lose     the same, and each closes copies of all descriptors that it has: locks on files go with them
 *   fail     the same, and each tries to execute programs that are not there
 *   one      each is killed before the next one begins, and then this process fills as much, and looks at it
 * Prints ok, or what was wrong; "not here" where such namespaces are not to be had. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN_MAX = 64 };

static unsigned char value(unsigned child, size_t at) {
    return (unsigned char)((at * 2654435761u >> 13) ^ child * 37 ^ at >> 12);
}

static void lose_locks(void) {
    for (int fd = 3; fd < 1100; fd++) {
        int copy = dup(fd);
        if (copy >= 0) close(copy);
    }
}

static int child(unsigned number, size_t bytes, const char *how, int ready, int go) {
    unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 2;
    for (size_t i = 0; i < bytes; i++) p[i] = value(number, i);
    char byte = 0, *const words[] = {"nothing", NULL};
    if (!strcmp(how, "lose")) lose_locks();
    for (int i = 0; i < 5 && !strcmp(how, "fail"); i++) execv("/dev/null/nothing", words);
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) return 3;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != value(number, i)) return 4;
    return 0;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int children = atoi(words[1]), go[2], bad = 0;
    const char *how = words[3];
    int inherits = count > 4 && !strcmp(words[4], "inherit");
    size_t bytes = (size_t)atoi(words[2]) << 20;
    pid_t pids[CHILDREN_MAX] = {0};
    if (children > CHILDREN_MAX || pipe(go)) return 2;
    /* A namespace ends with the first process in it. */
    pid_t first = inherits ? fork() : 0;
    if (inherits && first == 0) {
        for (;;) pause();
    }
    for (int i = 0; i < children; i++) {
        int ready[2];
        if (pipe(ready)) return 2;
        pids[i] = syscall(SYS_clone, (inherits ? 0 : CLONE_NEWUSER | CLONE_NEWPID) | SIGCHLD, 0, 0, 0, 0);
        if (pids[i] == 0) {
            close(go[1]);
            if (!inherits && getpid() != 1) _exit(1);
            _exit(child(i, bytes, how, ready[1], go[0]));
        }
        if (pids[i] < 0) {
            puts("not here");
            return 0;
        }
        close(ready[1]);
        char byte;
        if (read(ready[0], &byte, 1) != 1) bad = 1;
        close(ready[0]);
        if (!strcmp(how, "one") || (!strcmp(how, "kill") && i % 2 == 0))
            kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0), pids[i] = 0;
    }
    usleep(300000);
    close(go[1]);
    for (int i = 0; i < children; i++) {
        int status = 0;
        if (pids[i] && (waitpid(pids[i], &status, 0) != pids[i] || status)) {
            printf("child %d: status %#x\n", i, status);
            bad = 1;
        }
    }
    if (!strcmp(how, "one")) {
        unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return 2;
        for (size_t i = 0; i < bytes; i++) p[i] = value(99, i);
        for (size_t i = 0; i < bytes; i++) bad |= p[i] != value(99, i);
    }
    if (first > 0) kill(first, SIGKILL), waitpid(first, NULL, 0);
    puts(bad ? "bad" : "ok");
    return bad;
}
