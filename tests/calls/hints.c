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
int main(void) {
    tmpdir();
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
