/* MADV_WIPEONFORK: the child reads zeros, and finds the parent's content nowhere in its memory, wherever the pages were
 * when it was forked. The same for what the parent had given back or overwritten. */
#include "common.h"

enum { PAGES = 512 };
/* Never in memory as such in the child: made from its complement. */
static const uint64_t marks[4] = {~0x5ec3e7a1b2c3d4e5UL, ~0x1122aabb33cc44ddUL, ~0x9182736455463728UL, ~0xfeedc0de0badf00dUL};

static void secret(char *p, size_t pages) {
    for (size_t i = 0; i < pages; i++) {
        noise(p + i * PAGE, PAGE, i + 1);
        for (size_t at = 0; at < PAGE; at += 512)
            for (int k = 0; k < 4; k++) *(uint64_t *)(p + i * PAGE + at + k * 8) = ~marks[k];
    }
}
/* Counts them in all memory that this process can read. */
static int found(void) {
    static uint64_t part[1 << 16];
    int count = 0, mem = open("/proc/self/mem", O_RDONLY);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    CHECK(mem >= 0 && maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || strstr(line, "[v")) continue;
        for (; start < end; start += sizeof part) {
            /* Room that was only reserved has nothing to read: its page table says so at once. */
            size_t n = end - start < sizeof part ? end - start : sizeof part;
            ssize_t r = -1;
            if (end - start > 8UL << 30) break;
            r = pread(mem, part, n, start);
            for (ssize_t i = 0; i + 4 <= r / 8; i++)
                if (part[i] == ~marks[0] && part[i + 1] == ~marks[1] && part[i + 2] == ~marks[2] && part[i + 3] == ~marks[3])
                    count++;
            if (r > 0) memset(part, 0, r);
        }
    }
    fclose(maps), close(mem);
    return count;
}
int main(void) {
    tmpdir();
    char *p = fresh(PAGES), *kept = fresh(PAGES);
    noise(kept, PAGES * PAGE, 9);
    for (int way = 0; way < 3; way++) {
        secret(p, PAGES);
        OK(madvise(p, PAGES * PAGE, MADV_WIPEONFORK));
        if (way == 1) evict(p, PAGES * PAGE);
        if (way == 2) evict(p, PAGES / 2 * PAGE), pressure(40), (void)*(volatile char *)(p + 3 * PAGE);
        expect_exit(CHILD({
            check_zero(p, PAGES * PAGE);
            EQ(found(), 0);
            check_noise(kept, PAGES * PAGE, 9);
            secret(p, 4), CHECK(found() > 0);
            expect_exit(CHILD({ check_zero(p, PAGES * PAGE), EQ(found(), 0); }), 0);
        }), 0);
        for (size_t i = 0; i < PAGES; i++) EQ(*(uint64_t *)(p + i * PAGE + 8), ~marks[1]);
        OK(madvise(p, PAGES * PAGE, MADV_KEEPONFORK));
        expect_exit(CHILD({ EQ(*(uint64_t *)(p + 8), ~marks[1]); }), 0);
    }
    puts("ok");
    return 0;
}
