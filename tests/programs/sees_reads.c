/* A library of the user's, for LD_PRELOAD, that stands in front of read(2) and syscall(2), and adds a line to the file SEEN that says how many
 * there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int reads, calls;

ssize_t read(int fd, void *to, size_t n) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    __atomic_add_fetch(&reads, 1, __ATOMIC_SEQ_CST);
    return next(fd, to, n);
}
long syscall(long nr, ...) {
    static long (*next)(long, ...);
    long a[6];
    va_list list;
    va_start(list, nr);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    return next(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SEEN");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) fprintf(f, "%d %d\n", reads, calls), fclose(f);
}
