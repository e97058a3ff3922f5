/* Uses linked_library.c, to which it is linked; and opens a library that wants executable stacks. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

long library_own(void);
int library_reverses(char *at, size_t bytes);

int main(int argc, char **argv) {
    size_t bytes = 48 << 20;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (argc != 2 || at == MAP_FAILED) return 1;
    for (size_t i = 0; i < bytes / 8; i++) ((uint64_t *)at)[i] = i * 0x9e3779b97f4a7c15;
    printf("own: %ld\n", library_own());
    printf("thread: %d\n", library_reverses(at, bytes));
    for (size_t i = 0; i < bytes / 8; i++)
        if (((uint64_t *)at)[i] != ~(i * 0x9e3779b97f4a7c15)) return printf("wrong at %zu\n", i), 2;
    void *opened = dlopen(argv[1], RTLD_NOW);
    printf("executable stack: %s\n", opened ? "opened" : dlerror());
    return 0;
}
