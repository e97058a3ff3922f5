/* constants_opened LIBRARY [ARGS...]: runs constants.c that is built as a library, opened in a thread while another is at work. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static char **arguments;
static int count, result;
static _Atomic int done;

static void *opens(void *path) {
    void *library = dlopen(path, RTLD_NOW);
    int (*program)(int, char **) = NULL;
    if (library) *(void **)&program = dlsym(library, "main");
    result = program ? program(count, arguments) : 3;
    if (library && dlclose(library)) result = 4;
    done = 1;
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc < 2) return 2;
    arguments = argv + 1, count = argc - 1;
    if (pthread_create(&thread, NULL, opens, argv[1])) return 5;
    for (unsigned seed = 1; !done; seed++) {
        char *memory = malloc(seed % 64 << 10 | 1);
        memory[0] = (char)seed;
        free(memory);
    }
    pthread_join(thread, NULL);
    return result;
}
