/* Hundreds of ranges that a forked child is not to have (V8 marks all that it maps), of which parts are unmapped and mapped anew. */
#include "common.h"

enum { RANGES = 400, APART = 24, MARKED = 10, BIG = 4096 };

static int is_there(char *p) {
    unsigned char in;
    errno = 0;
    if (mincore(p, PAGE, &in) == 0) return 1;
    EQ(errno, ENOMEM);
    return 0;
}

int main(void) {
    static char *ranges[RANGES];
    alarm(60), pressure(40);
    char *big = mmap(NULL, BIG * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(big != MAP_FAILED);
    OK(madvise(big, BIG * PAGE, MADV_DONTFORK));
    for (int i = 0; i < RANGES; i++) {
        ranges[i] = guarded(APART);
        fill(ranges[i], APART * PAGE, i), evict_some(ranges[i], APART * PAGE);
        OK(madvise(ranges[i], MARKED * PAGE, MADV_DONTFORK));
    }
    /* What is marked already may be marked again, in part and in one with what lies beside it. */
    for (int i = 0; i < RANGES; i += 3) OK(madvise(ranges[i] + PAGE, MARKED * PAGE, MADV_DONTFORK));
    /* What is mapped there anew is not marked. */
    for (int i = 0; i < 200; i++) {
        char *p = big + (10 + i * 20L) * PAGE;
        OK(mprotect(p, 4 * PAGE, PROT_READ | PROT_WRITE)), fill(p, 4 * PAGE, i);
        EQ(mmap(p, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
        if (i % 2) OK(madvise(p, 4 * PAGE, MADV_DONTFORK));
    }
    OK(munmap(big + 5 * PAGE, PAGE));
    for (int i = 0; i < RANGES; i += 2) OK(munmap(ranges[i] + 4 * PAGE, 2 * PAGE));
    pid_t child = CHILD(
        for (int i = 0; i < RANGES; i++)
            for (int k = 0; k < APART; k++) EQ(is_there(ranges[i] + k * PAGE), k >= MARKED + (i % 3 == 0));
        for (int i = 0; i < 200; i++) EQ(is_there(big + (10 + i * 20L) * PAGE), i % 2 == 0);
        for (int i = 0; i < 10; i++) EQ(is_there(big + i * PAGE), 0);
        for (int i = 0; i < RANGES; i++) check_from(ranges[i] + (MARKED + 1) * PAGE, (APART - MARKED - 1) * PAGE, i, (MARKED + 1) * PAGE););
    expect_exit(child, 0);
    for (int i = 0; i < RANGES; i++) check(ranges[i], 4 * PAGE, i), check_from(ranges[i] + 6 * PAGE, (APART - 6) * PAGE, i, 6 * PAGE);
    puts("ok");
    return 0;
}
