/* Memory that loses all rights while it is in memory gives room to other memory, and has its content when the rights come
 * back. */
#include "common.h"

enum { CLOSED = 28 << 20, OTHER = 24 << 20, ROUNDS = 3 };

static void mark(char *p, size_t n, size_t seed) {
    for (size_t i = 0; i < n; i += PAGE) *(volatile size_t *)(p + i) = i + seed;
}
static void check_marks(const char *p, size_t n, size_t seed) {
    for (size_t i = 0; i < n; i += PAGE) EQ(*(const volatile size_t *)(p + i), i + seed);
}
static void round_with(int prot) {
    char *p = fresh(CLOSED / PAGE), *q = fresh(OTHER / PAGE);
    mark(p, CLOSED, prot + 1);
    OK(mprotect(p, CLOSED, prot));
    for (int turn = 0; turn < ROUNDS; turn++) mark(q, OTHER, turn), check_marks(q, OTHER, turn);
    /* Every other page alone. */
    OK(mprotect(p, CLOSED, PROT_READ | PROT_WRITE));
    check_marks(p, CLOSED, prot + 1);
    for (size_t i = 0; i < 8 * MIB; i += 2 * PAGE) OK(mprotect(p + i, PAGE, prot));
    mark(q, OTHER, 9), check_marks(q, OTHER, 9);
    OK(mprotect(p, CLOSED, PROT_READ));
    check_marks(p, CLOSED, prot + 1);
    OK(munmap(p, CLOSED)), OK(munmap(q, OTHER));
}
int main(void) {
    tmpdir();
    round_with(PROT_NONE), round_with(PROT_READ);
    /* Closed in the parent, used by the child. */
    char *p = fresh(CLOSED / PAGE);
    mark(p, CLOSED, 5);
    OK(mprotect(p, CLOSED, PROT_NONE));
    pid_t pid = CHILD({
        pressure(OTHER >> 20);
        OK(mprotect(p, CLOSED, PROT_READ));
        check_marks(p, CLOSED, 5);
    });
    expect_exit(pid, 0);
    pressure(OTHER >> 20);
    OK(mprotect(p, CLOSED, PROT_READ)), check_marks(p, CLOSED, 5);
    puts("ok");
    return 0;
}
