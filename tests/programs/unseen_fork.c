/* Forks by an instruction that is made at run time, so that nobody sees it. It lies in a file: an unseen child has no managed memory,
 * nor code in it. The child does what the argument says; how it ended is printed. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1UL << 20)

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    /* mov eax, 57; syscall; ret */
    static const unsigned char code[] = {0xb8, 57, 0, 0, 0, 0x0f, 0x05, 0xc3};
    int file = memfd_create("code", 0);
    if (file < 0 || write(file, code, sizeof code) != sizeof code) return 5;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    if (page == MAP_FAILED) return 6;
    volatile char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset((char *)p, 5, BYTES);
    madvise((char *)p, BYTES, 21 /* MADV_PAGEOUT */);
    int pid = ((int (*)(void))page)();
    if (pid == 0) {
        if (!strcmp(what, "read")) {
            /* Silent zeros are the one end that must not be. */
            for (size_t i = 0; i < BYTES; i += 4096)
                if (p[i] != 5) _exit(66);
            _exit(0);
        }
        if (!strcmp(what, "exit")) _exit(7);
        if (!strcmp(what, "exec")) {
            char *const arguments[] = {"sh", "-c", "exit 8", NULL};
            execve("/bin/sh", arguments, environ);
            _exit(9);
        }
        if (!strcmp(what, "call")) _exit(write(1, (char *)p, 1) == 1 ? 0 : errno == EFAULT ? 10 : 11);
        _exit(1);
    }
    /* The parent's memory is as it was, whatever the child did. */
    int status;
    if (waitpid(pid, &status, 0) != pid) return 2;
    for (size_t i = 0; i < BYTES; i++)
        if (p[i] != 5) return 3;
    if (fork() == 0) {
        for (size_t i = 0; i < BYTES; i++)
            if (p[i] != 5) _exit(4);
        _exit(0);
    }
    int second;
    wait(&second);
    printf("%d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), second);
    return 0;
}
