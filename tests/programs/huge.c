// Fills memory from start to end, so that a part of it comes as a huge page, does something to that part, then needs more memory than it
// may have, and looks at every byte.
//
// huge HOW: leave, drop, protect, move, unmap, lock, fork, scatter; try: fails where the kernel has no huge page for it.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE_BYTES = 2 << 20, FILLED = 5 * HUGE_BYTES, MORE = 24 << 20 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t word(size_t page, size_t at, unsigned seed) {
    uint64_t x = (page * 512 + at + 1) * 0x9e3779b97f4a7c15u + seed;
    return at % 2 ? x : page + 1;
}

static void fill(char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes / 8; i++) ((uint64_t *)at)[i] = word(i / 512, i % 512, seed);
}

// Whether pages `from` to `to` of what was filled at `start` are at `at`.
static void look(const char *at, size_t from, size_t to, unsigned seed, const char *what) {
    for (size_t i = from * 512; i < to * 512; i++) {
        if (((const uint64_t *)at)[i - from * 512] != word(i / 512, i % 512, seed)) {
            fprintf(stderr, "%s: word %zu is wrong\n", what, i);
            exit(1);
        }
    }
}

static void zeros(const char *at, size_t pages) {
    for (size_t i = 0; i < pages * PAGE; i++) {
        if (at[i]) {
            fprintf(stderr, "byte %zu is no zero\n", i);
            exit(1);
        }
    }
}

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    return (char *)(((uintptr_t)at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
}

// Whether what is written comes as huge pages, as many as are to come of what is filled.
static int come_huge(void) {
    char *at = map(FILLED);
    if (madvise(at, FILLED, MADV_HUGEPAGE)) return 0;
    for (size_t i = 0; i < FILLED; i += HUGE_BYTES) at[i] = 1;
    FILE *maps = fopen("/proc/self/smaps_rollup", "r");
    if (!maps) fail("smaps_rollup");
    char line[256];
    long kib = 0;
    while (fgets(line, sizeof line, maps) && sscanf(line, "AnonHugePages: %ld", &kib) != 1) continue;
    return kib >= FILLED >> 10;
}

// Needs so much that all else has to go, twice.
static void press(void) {
    char *more = map(MORE);
    for (unsigned round = 0; round < 2; round++) {
        fill(more, MORE, round);
        look(more, 0, MORE / PAGE, round, "what was more");
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "leave";
    if (!strcmp(how, "try")) return !come_huge();
    char *at = map(FILLED), *huge = at + HUGE_BYTES;
    const size_t first = HUGE_BYTES / PAGE, all = FILLED / PAGE, part = first + 100, end = part + 150;
    char *middle = huge + 100 * PAGE;
    fill(at, FILLED, 7);
    if (!strcmp(how, "drop")) {
        if (madvise(middle, 150 * PAGE, MADV_DONTNEED)) fail("madvise");
        zeros(middle, 150);
        press();
        zeros(middle, 150);
    } else if (!strcmp(how, "unmap")) {
        if (munmap(middle, 150 * PAGE)) fail("munmap");
        press();
        if (mmap(middle, 150 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != middle) fail("mmap");
        zeros(middle, 150);
    } else if (!strcmp(how, "protect")) {
        if (mprotect(middle, 150 * PAGE, PROT_NONE)) fail("mprotect");
        press();
        if (mprotect(middle, 150 * PAGE, PROT_READ)) fail("mprotect");
        look(middle, part, end, 7, "protected");
    } else if (!strcmp(how, "move")) {
        char *to = map(HUGE_BYTES);
        if (mremap(middle, 150 * PAGE, 150 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE) != to + PAGE) fail("mremap");
        press();
        look(to + PAGE, part, end, 7, "moved");
    } else if (!strcmp(how, "lock")) {
        for (int i = 0; i < 150; i += 30) {
            if (mlock(middle + i * PAGE, PAGE)) fail("mlock");
        }
        press();
        look(middle, part, end, 7, "locked");
    } else if (!strcmp(how, "scatter")) {
        // Every other page goes, and comes back as another.
        for (int i = 0; i < 150; i += 2) {
            if (madvise(middle + i * PAGE, PAGE, MADV_DONTNEED)) fail("madvise");
        }
        press();
        for (int i = 0; i < 150; i += 2) zeros(middle + i * PAGE, 1);
        for (int i = 1; i < 150; i += 2) look(middle + i * PAGE, part + i, part + i + 1, 7, "between");
    } else if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            look(at, 0, all, 7, "child");
            fill(at, FILLED, 8);
            press();
            look(at, 0, all, 8, "child, later");
            _exit(0);
        }
        press();
        look(at, 0, all, 7, "parent");
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child ended with %x\n", status);
            return 1;
        }
        look(at, 0, all, 7, "parent, later");
    } else {
        press();
        look(middle, part, end, 7, "left");
    }
    look(at, 0, part, 7, "before");
    look(at + end * PAGE, end, all, 7, "behind");
    puts("ok");
    return 0;
}
