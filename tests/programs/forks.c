/* Much memory that is written once, and a little that is written again and again, after each of many forks. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ALL = 40 << 20, HOT = 8 << 20, FORKS = 24, PASSES = 3 };

int main(void) {
    volatile char *at = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 1;
    for (size_t i = 0; i < ALL; i += PAGE) at[i] = (char)(i / PAGE);
    for (int round = 0; round < FORKS; round++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) return 2;
        for (int pass = 0; pass < PASSES; pass++)
            for (size_t i = 0; i < HOT; i += PAGE) at[i] ^= 1;
    }
    for (size_t i = 0; i < ALL; i += PAGE)
        if (at[i] != (char)(i / PAGE)) return 3;
    puts("ok");
    return 0;
}
