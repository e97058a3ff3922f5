/* A library of the user's, for LD_PRELOAD, that stands in front of read(2), and adds a line to the file SEEN that says how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int reads;

ssize_t read(int fd, void *to, size_t n) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    __atomic_add_fetch(&reads, 1, __ATOMIC_SEQ_CST);
    return next(fd, to, n);
}
__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SEEN");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) fprintf(f, "%d\n", reads), fclose(f);
}
