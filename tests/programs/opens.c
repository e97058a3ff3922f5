/* opens LIBRARY: opens zeros_library.c and uses its zeros in all ways that memory is used: by its code and ours, by system calls, in a child,
 * and once more after it was closed. Says where they are wrong. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            return 1; \
        } \
    } while (0)

static void *library;
static unsigned char *(*at)(void);
static size_t (*bytes)(void), (*wrong)(unsigned long);
static void (*fill)(unsigned long);

static int opened(const char *path) {
    library = dlopen(path, RTLD_NOW);
    if (!library) return 0;
    *(void **)&at = dlsym(library, "zeros_at");
    *(void **)&bytes = dlsym(library, "zeros_bytes");
    *(void **)&fill = dlsym(library, "zeros_fill");
    *(void **)&wrong = dlsym(library, "zeros_wrong");
    return at && bytes && fill && wrong;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (unsigned long round = 1; round <= 3; round++) {
        CHECK(opened(argv[1]));
        for (size_t i = 0; i < bytes(); i += 4096) CHECK(at()[i] == 0);
        fill(round);
        CHECK(wrong(round) == bytes());
        /* System calls write to what is evicted, and read from it. */
        int pipes[2];
        unsigned char there[4096], back[4096];
        CHECK(pipe(pipes) == 0);
        for (size_t i = 0; i < bytes(); i += 1 << 20) {
            memset(there, (int)(i >> 20), sizeof there);
            CHECK(write(pipes[1], there, sizeof there) == sizeof there);
            CHECK(read(pipes[0], at() + i + 100, sizeof there) == sizeof there);
            CHECK(write(pipes[1], at() + i + 100, sizeof there) == sizeof there);
            CHECK(read(pipes[0], back, sizeof back) == sizeof back);
            CHECK(memcmp(there, back, sizeof back) == 0);
        }
        fill(round);
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            if (wrong(round) != bytes()) _exit(1);
            fill(round + 100);
            _exit(wrong(round + 100) == bytes() ? 0 : 2);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(wrong(round) == bytes());
        CHECK(dlclose(library) == 0);
        close(pipes[0]);
        close(pipes[1]);
    }
    puts("ok");
    return 0;
}
