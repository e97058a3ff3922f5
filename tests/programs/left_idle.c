// Many processes that have touched a page each and then wait; one that uses memory beside them, and checks all of it.
// Usage: left_idle PROCESSES MIB
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDLE_BYTES = 6 << 20, PAGE = 4096, MOST = 64 };

static unsigned char *map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

// Says that it is there, and ends when its parent does.
static int idle(void) {
    char byte = 1;
    map(IDLE_BYTES)[IDLE_BYTES / 2] = 1;
    return write(1, &byte, 1) != 1 || read(0, &byte, 1) != 0;
}

int main(int argc, char **argv) {
    if (argc == 2)
        return idle();
    int count = atoi(argv[1]), ready[2], end[2];
    size_t bytes = (size_t)atoi(argv[2]) << 20;
    pid_t children[MOST];
    if (count > MOST || pipe(ready) || pipe(end))
        return 1;
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            dup2(end[0], 0);
            dup2(ready[1], 1);
            for (int fd = 3; fd <= end[1]; fd++)
                close(fd);
            execl("/proc/self/exe", "left_idle", "idle", NULL);
            _exit(1);
        }
    }
    close(ready[1]);
    close(end[0]);
    char byte;
    for (int i = 0; i < count; i++)
        if (read(ready[0], &byte, 1) != 1)
            return 1;
    unsigned char *used = map(bytes);
    for (int round = 0; round < 3; round++) {
        for (size_t at = 0; at < bytes; at += PAGE)
            memset(used + at, (int)(at / PAGE * 7 + round), PAGE);
        for (size_t at = 0; at < bytes; at++)
            if (used[at] != (unsigned char)(at / PAGE * 7 + round)) {
                printf("wrong at %zu\n", at);
                return 1;
            }
    }
    close(end[1]);
    int failed = 0;
    for (int i = 0; i < count; i++) {
        int status;
        failed |= waitpid(children[i], &status, 0) != children[i] || status != 0;
    }
    puts(failed ? "a child failed" : "ok");
    return failed;
}
