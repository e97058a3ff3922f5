/* Children, each the first of a pid namespace and so with the number 1, fill so many MiB each, and hold them until all have; every second
 * one is killed if that is asked for. Prints ok, or what was wrong; "not here" where such namespaces are not to be had. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN_MAX = 64 };

static unsigned char value(unsigned child, size_t at) {
    return (unsigned char)((at * 2654435761u >> 13) ^ child * 37 ^ at >> 12);
}

static int child(unsigned number, size_t bytes, int ready, int go) {
    unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (getpid() != 1 || p == MAP_FAILED) return 2;
    for (size_t i = 0; i < bytes; i++) p[i] = value(number, i);
    char byte = 0;
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) return 3;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != value(number, i)) return 4;
    return 0;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    int children = atoi(words[1]), kills = atoi(words[3]), go[2], bad = 0;
    size_t bytes = (size_t)atoi(words[2]) << 20;
    pid_t pids[CHILDREN_MAX] = {0};
    if (children > CHILDREN_MAX || pipe(go)) return 2;
    for (int i = 0; i < children; i++) {
        int ready[2];
        if (pipe(ready)) return 2;
        pids[i] = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
        if (pids[i] == 0) {
            close(go[1]);
            _exit(child(i, bytes, ready[1], go[0]));
        }
        if (pids[i] < 0) {
            puts("not here");
            return 0;
        }
        close(ready[1]);
        char byte;
        if (read(ready[0], &byte, 1) != 1) bad = 1;
        close(ready[0]);
        if (kills && i % 2 == 0) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0), pids[i] = 0;
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
    puts(bad ? "bad" : "ok");
    return bad;
}
