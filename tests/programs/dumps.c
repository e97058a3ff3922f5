/* Leaves a core dump, where one is allowed, after telling how many of its marked pages should be in it: "resident N". Each marked page
 * starts with a mark and its number. From 100000 on they must not be found: what was hidden, and what is unmapped. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE 4096UL
static volatile uint64_t key = 0x9e3779b97f4a7c15;

static void mark(char *p, uint64_t first, size_t pages) {
    for (size_t i = 0; i < pages; i++) {
        uint64_t *head = (uint64_t *)(p + i * PAGE);
        head[0] = key * 3, head[1] = first + i;
    }
}
static char *map(void *at, size_t pages, int prot) {
    char *p = mmap(at, pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) exit(1);
    return p;
}
static size_t resident(char *p, size_t pages) {
    static unsigned char flags[4096];
    size_t count = 0;
    if (mincore(p, pages * PAGE, flags)) exit(2);
    for (size_t i = 0; i < pages; i++) count += flags[i] & 1;
    return count;
}
int main(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit), limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_CORE, &limit);
    /* Used, and a part of it evicted where that can be. */
    char *used = map(NULL, 2048, PROT_READ | PROT_WRITE);
    mark(used, 0, 2048), madvise(used, 512 * PAGE, MADV_PAGEOUT);
    char *closed = map(NULL, 64, PROT_READ | PROT_WRITE);
    mark(closed, 2048, 64), mprotect(closed, 64 * PAGE, PROT_NONE);
    char *read_only = map(NULL, 64, PROT_READ | PROT_WRITE);
    mark(read_only, 2112, 64), mprotect(read_only, 64 * PAGE, PROT_READ);
    /* Much that is reserved, of which a part is used. */
    char *reserved = map(NULL, 1 << 20, PROT_NONE), *inside = reserved + (1UL << 31);
    mprotect(inside, 64 * PAGE, PROT_READ | PROT_WRITE), mark(inside, 2176, 64);
    /* Hidden, also before it could be used, and what comes where something was hidden. */
    char *secret = map(NULL, 64, PROT_NONE);
    madvise(secret, 64 * PAGE, MADV_DONTDUMP);
    mprotect(secret, 64 * PAGE, PROT_READ | PROT_WRITE), mark(secret, 100000, 64);
    char *gone = map(NULL, 1000, PROT_READ | PROT_WRITE);
    mark(gone, 200000, 1000), madvise(gone, 1000 * PAGE, MADV_DONTDUMP), munmap(gone, 1000 * PAGE);
    char *again = map(gone, 64, PROT_READ | PROT_WRITE);
    mark(again, 2240, 64);
    size_t count = resident(used, 2048) + resident(closed, 64) + resident(read_only, 64) + resident(inside, 64)
        + resident(again, 64);
    printf("resident %zu\n", count);
    fflush(stdout);
    abort();
}
