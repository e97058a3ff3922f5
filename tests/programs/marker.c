/* A library that says that it was loaded: a line in the file that MARKER names, with what the process is. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    const char *path = getenv("MARKER");
    char line[256], self[128];
    if (!path) return;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n < 0 ? 0 : n] = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    n = snprintf(line, sizeof line, "%s as %d\n", self, (int)geteuid());
    if (fd < 0 || write(fd, line, n) != n) _exit(99);
    close(fd);
}
