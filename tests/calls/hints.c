/* Addresses without MAP_FIXED. A program that gives back what it got elsewhere, and asks for place after place, gets one in the end, and
 * can use it as memory of its own, shared and private. One that takes what it gets keeps managed memory. */
#include "common.h"

#define BYTES (16 * MIB)
static char *reserve(uintptr_t at) {
    char *p = mmap((void *)at, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
/* As ZGC does: the same place in three views. */
static char *insist(void) {
    for (uintptr_t at = 0x40000000000; at < 0x80000000000; at += 128 * MIB) {
        char *p = reserve(at);
        if (p == (char *)at) return p;
        OK(munmap(p, BYTES));
    }
    die("no place in all of 4 TiB");
}
/* As V8 does: pieces at borders of 256 KiB, for each of which almost twice as much is mapped at an address at random, and what lies over
 * is cut off. Under Outswap they lie close together, wherever the addresses point. */
static void chunks(void) {
    enum { COUNT = 64, CHUNK = 64 * PAGE, ASKED = 2 * CHUNK - PAGE };
    uintptr_t at = 0x200000000000;
    int jumps = 0;
    char *all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        at += 0x1740000000 + i * CHUNK;
        char *p = mmap((void *)at, ASKED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        char *chunk = (char *)(((uintptr_t)p + CHUNK - 1) & ~(uintptr_t)(CHUNK - 1));
        if (chunk > p) OK(munmap(p, chunk - p));
        if (p + ASKED > chunk + CHUNK) OK(munmap(chunk + CHUNK, p + ASKED - (chunk + CHUNK)));
        OK(mprotect(chunk, CHUNK, PROT_READ | PROT_WRITE));
        fill(chunk, CHUNK, i);
        all[i] = chunk;
        jumps += i > 0 && labs(chunk - all[i - 1]) > 4 * CHUNK;
    }
    /* One of the addresses may be near by chance, and is had then. */
    if (getenv("OUTSWAP_E2E_MANAGED") && jumps > 2) die("%d pieces, %d of them apart from the one before", COUNT, jumps);
    for (int i = 0; i < COUNT; i++) evict(all[i], CHUNK), check(all[i], CHUNK, i);
    /* What is given back is had again by its address; and what is large, anywhere. */
    OK(munmap(all[7], CHUNK));
    CHECK(mmap(all[7], CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == all[7]);
    fill(all[7], CHUNK, 77), evict(all[7], CHUNK), check(all[7], CHUNK, 77);
    char *large = (char *)(at + 0x1740000000);
    CHECK(mmap(large, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == large);
    OK(munmap(large, BYTES));
    for (int i = 0; i < COUNT; i++) OK(munmap(all[i], CHUNK));
}
int main(void) {
    tmpdir();
    chunks();
    /* Each is kept: nothing is asked for again. */
    char *kept[64];
    for (int i = 0; i < 64; i++) kept[i] = reserve(0x30000000000 + i * (1UL << 32));
    for (int i = 0; i < 64; i++) {
        OK(mprotect(kept[i], BYTES, PROT_READ | PROT_WRITE));
        fill(kept[i], 4 * PAGE, i), evict(kept[i], 4 * PAGE), check(kept[i], 4 * PAGE, i);
        OK(munmap(kept[i], BYTES));
    }
    char *one = insist();
    char *two = reserve((uintptr_t)one + 0x40000000000);
    CHECK(two == one + 0x40000000000);
    int fd = memfd_create("views", 0);
    OK(ftruncate(fd, BYTES));
    CHECK(mmap(one, BYTES / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == one);
    CHECK(mmap(two, BYTES / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == two);
    fill(one, 64 * PAGE, 1), check(two, 64 * PAGE, 1);
    char *private = one + BYTES / 2;
    CHECK(mmap(private, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == private);
    fill(private, MIB, 2);
    OK(mprotect(private + 2 * MIB, MIB, PROT_READ | PROT_WRITE));
    fill(private + 2 * MIB, MIB, 3);
    expect_exit(CHILD({
        check(two, 64 * PAGE, 1), check(private, MIB, 2), check(private + 2 * MIB, MIB, 3);
        fill(private, MIB, 4);
    }),
        0);
    check(private, MIB, 2);
    /* What is no reservation, and what has no address, is managed as before. */
    char *other = fresh(64);
    fill(other, 64 * PAGE, 5), evict(other, 64 * PAGE), check(other, 64 * PAGE, 5);
    OK(munmap(one, BYTES)), OK(munmap(two, BYTES));
    puts("ok");
    return 0;
}
