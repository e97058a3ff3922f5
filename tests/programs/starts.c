// Executes a program: starts WAY PROGRAM. Ends with 1 where that is refused. With other arguments it says that it runs.
//
// WAY: path, by a descriptor that only names it; read, by one that can be read; full, with all descriptors in use; script, by its name.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    // It is what was started.
    if (argc != 3) return puts("ok") < 0;
    char *words[] = {argv[2], "bss", "1", "1", NULL};
    int is_path = !strcmp(argv[1], "path");
    if (is_path || !strcmp(argv[1], "read")) {
        // A script is opened anew by its interpreter.
        int fd = open(argv[2], is_path ? O_PATH : O_RDONLY);
        syscall(SYS_execveat, fd, "", words, environ, AT_EMPTY_PATH);
    } else {
        struct rlimit few = {64, 64};
        if (!strcmp(argv[1], "full") && setrlimit(RLIMIT_NOFILE, &few)) return 2;
        while (!strcmp(argv[1], "full") && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
        execve(argv[2], words, environ);
    }
    perror("exec");
    return 1;
}
