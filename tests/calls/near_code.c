/* Memory for code that is made at run time. A compiler asks for places near the program's own code, first without the right to execute,
 * as LuaJIT does, and gets them at once; small executable pieces lie where they are asked for; and an executable heap, which is
 * large or may lie anywhere, holds data and code that come back whole after they were evicted. */
#include "common.h"

#define REACH (1L << 31)
#define HEAP (64 * MIB)

static int seven(void) { return 7; }

/* Writes a function that calls `seven`, directly, and adds 1. */
static void assemble(unsigned char *at) {
    static const unsigned char head[] = {0x48, 0x83, 0xec, 0x08, 0xe8}, tail[] = {0x83, 0xc0, 0x01, 0x48, 0x83, 0xc4, 0x08, 0xc3};
    long distance = (long)seven - (long)(at + sizeof head + 4);
    CHECK(distance > -REACH && distance < REACH);
    int relative = (int)distance;
    memcpy(at, head, sizeof head);
    memcpy(at + sizeof head, &relative, 4);
    memcpy(at + sizeof head + 4, tail, sizeof tail);
}
/* mov eax, number; ret */
static void constant(unsigned char *at, unsigned number) {
    at[0] = 0xb8, at[5] = 0xc3;
    memcpy(at + 1, &number, 4);
}
static int run(void *at) { return ((int (*)(void))at)(); }

int main(void) {
    uintptr_t hint = (uintptr_t)main & -MIB;
    for (int i = 1; i <= 16; i++) {
        int rights = i % 2 ? PROT_READ | PROT_WRITE : PROT_READ | PROT_WRITE | PROT_EXEC;
        unsigned char *p = mmap((void *)(hint + i * 4 * MIB), 64 * 1024, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        CHECK(labs((long)p - (long)main) < REACH);
        assemble(p + i * 64);
        OK(mprotect(p, 64 * 1024, PROT_READ | PROT_EXEC));
        EQ(run(p + i * 64), 8);
        expect_exit(CHILD(EQ(run(p + i * 64), 8)), 0);
        OK(munmap(p, 64 * 1024));
    }
    for (int hinted = 0; hinted < 2; hinted++) {
        unsigned char *p = mmap(hinted ? (void *)0x1000000000 : NULL, HEAP, PROT_READ | PROT_WRITE | PROT_EXEC,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(p != MAP_FAILED);
        fill(p, 64 * PAGE, 1);
        constant(p + 64 * PAGE, 41);
        EQ(run(p + 64 * PAGE), 41);
        evict((char *)p, 65 * PAGE);
        EQ(run(p + 64 * PAGE), 41);
        check(p, 64 * PAGE, 1);
        expect_exit(CHILD({
            check(p, 64 * PAGE, 1);
            constant(p + 64 * PAGE, 42);
            EQ(run(p + 64 * PAGE), 42);
        }),
            0);
        EQ(run(p + 64 * PAGE), 41);
        OK(mprotect(p, PAGE, PROT_READ));
        check(p, PAGE, 1);
        OK(munmap(p, HEAP));
    }
    puts("ok");
    return 0;
}
