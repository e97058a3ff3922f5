/* Children that live side by side read memory of their own that is fresh, N MiB each of C children, then fill it twice over and look at
 * every word. Nothing is shared but what they began with. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PASSES = 2 };
static int child(size_t pages) {
    uint64_t *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return perror("mmap"), 1;
    for (size_t i = 0; i < pages; i++)
        if (((volatile uint64_t *)at)[i * PAGE / sizeof *at]) return 2;
    for (uint64_t pass = 1; pass <= PASSES; pass++) {
        for (size_t i = 0; i < pages * PAGE / sizeof *at; i++) at[i] = i * pass;
        for (size_t i = 0; i < pages * PAGE / sizeof *at; i++)
            if (at[i] != i * pass) return fprintf(stderr, "word %zu\n", i), 2;
    }
    return 0;
}
int main(int argc, char **argv) {
    if (argc != 3) return 3;
    int failed = 0, count = atoi(argv[1]);
    size_t pages = strtoul(argv[2], NULL, 10) * (1 << 20) / PAGE;
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0) return perror("fork"), 4;
        if (pid == 0) _exit(child(pages));
    }
    for (int status; wait(&status) > 0;) failed |= status;
    puts(failed ? "wrong" : "ok");
    return failed != 0;
}
