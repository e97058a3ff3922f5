/* MADV_WIPEONFORK: the child reads zeros, and finds the parent's content nowhere in its memory, wherever the pages were
 * when it was forked. The same for what the parent had given back or overwritten. */
#include "scan.h"

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
static void look(unsigned long address, const uint64_t *page, void *count) {
    (void)address;
    for (size_t i = 0; i + 4 <= PAGE / 8; i++)
        if (page[i] == ~marks[0] && page[i + 1] == ~marks[1] && page[i + 2] == ~marks[2] && page[i + 3] == ~marks[3])
            ++*(int *)count;
}
/* How often they are in memory. */
static int found(void) {
    int count = 0;
    each_page(look, &count);
    return count;
}
int main(void) {
    tmpdir();
    char *p = fresh(PAGES), *kept = fresh(PAGES);
    noise(kept, PAGES * PAGE, 9);
    for (int way = 0; way < 3; way++) {
        secret(p, PAGES);
        OK(madvise(p, PAGES * PAGE, MADV_WIPEONFORK));
        if (way == 1) evict_some(p, PAGES * PAGE);
        if (way == 2) evict_some(p, PAGES / 2 * PAGE), pressure(40), (void)*(volatile char *)(p + 3 * PAGE);
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
