/* Looking through all memory of this very process, as somebody with a debugger would. */
#ifndef SCAN_H
#define SCAN_H
#include "common.h"

/* Calls `look` with a copy of every page that is in memory; what was only reserved is passed over. */
PIECE void each_page(void (*look)(unsigned long address, const uint64_t *page, void *arg), void *arg) {
    enum { AT_ONCE = 4096 };
    static uint64_t entries[AT_ONCE], page[PAGE / 8];
    int memory = open("/proc/self/mem", O_RDONLY), table = open("/proc/self/pagemap", O_RDONLY);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    CHECK(memory >= 0 && table >= 0 && maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || strstr(line, "[v")) continue;
        if (end - start > 16UL << 30) end = start + (16UL << 30);
        for (unsigned long at = start; at < end;) {
            size_t n = (end - at) / PAGE < AT_ONCE ? (end - at) / PAGE : AT_ONCE;
            ssize_t r = pread(table, entries, n * 8, at / PAGE * 8);
            if (r <= 0) break;
            for (size_t i = 0; i < (size_t)r / 8; i++, at += PAGE)
                if (entries[i] >> 62 && (void *)at != page && pread(memory, page, PAGE, at) == (ssize_t)PAGE)
                    look(at, page, arg);
        }
    }
    fclose(maps), close(table), close(memory);
    memset(page, 0, sizeof page);
}
#endif
