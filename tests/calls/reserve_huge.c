/* A reservation of 8 TiB in one piece, as MariaDB makes it: what is used of it is managed, goes with it, and is a forked child's too. And some
 * of more than all managed addresses, with access or without, in one piece or in many. */
#include "common.h"

#define HUGE_BYTES (8UL << 40)
#define RW (PROT_READ | PROT_WRITE)
#define FIXED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)

static void use(char *p, int seed) {
    fill(p, 4 * MIB, seed), evict(p, 4 * MIB), check(p, 4 * MIB, seed);
}
static void more_than_there_is(int prot, int pieces) {
    const size_t bytes = (16UL << 40) / pieces, used = MIB / pieces;
    char *p[16];
    for (int i = 0; i < pieces; i++) {
        p[i] = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(p[i] != MAP_FAILED);
        if (prot == PROT_NONE) OK(mprotect(p[i] + bytes / 2, used, RW));
        fill(p[i] + bytes / 2, used, i), evict_some(p[i] + bytes / 2, used);
    }
    expect_exit(CHILD({
        for (int i = 0; i < pieces; i++) check(p[i] + bytes / 2, used, i), fill(p[i] + bytes / 2, used, i + 1);
    }),
        0);
    for (int i = 0; i < pieces; i++) {
        check(p[i] + bytes / 2, used, i);
        OK(madvise(p[i], bytes, MADV_DONTNEED)), check_zero(p[i] + bytes / 2, used);
    }
    for (int i = 0; i < pieces; i++) OK(munmap(p[i], bytes));
}
int main(void) {
    tmpdir();
    for (int pieces = 1; pieces <= 16; pieces *= 16) more_than_there_is(PROT_NONE, pieces), more_than_there_is(RW, pieces);
    for (int round = 0; round < 3; round++) {
        char *all = mmap(NULL, HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(all != MAP_FAILED);
        if (getenv("OUTSWAP_E2E_MANAGED")) CHECK(((uintptr_t)all >> 40) >= 0x20 && ((uintptr_t)all >> 40) < 0x2c);
        char *middle = all + HUGE_BYTES / 2, *last = all + HUGE_BYTES - 4 * MIB;
        CHECK(mmap(all, 4 * MIB, RW, FIXED, -1, 0) == all);
        CHECK(mmap(last, 4 * MIB, RW, FIXED, -1, 0) == last);
        OK(mprotect(middle, 4 * MIB, RW));
        OK(madvise(all, 4 * MIB, MADV_DONTDUMP));
        use(all, 1), use(middle, 2), use(last, 3);
        evict(last, 4 * MIB);
        expect_exit(CHILD({ check(last, 4 * MIB, 3), check(middle, 4 * MIB, 2), use(last, 4); }), 0);
        check(last, 4 * MIB, 3);
        OK(madvise(all, HUGE_BYTES, MADV_DODUMP));
        check(all, 4 * MIB, 1);
        OK(madvise(middle, HUGE_BYTES / 2 - 4 * MIB, MADV_DONTNEED));
        check_zero(middle, 4 * MIB), check(last, 4 * MIB, 3);
        OK(munmap(all, HUGE_BYTES));
    }
    puts("ok");
    return 0;
}
