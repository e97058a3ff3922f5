/* Memory of the kernel's between pages that are only read: it stays as it is when those are evicted, which nobody has to copy. */
#include "common.h"

enum { PAGES = 512, ROUNDS = 4 };
/* Where it lies, at different places of the blocks of 64 pages. */
static const int places[] = {20, 90, 150, 173, 250, 310, 333, 400, 470};
enum { PLACES = sizeof places / sizeof *places };

static int is_place(int page) {
    for (int i = 0; i < PLACES; i++)
        if (places[i] == page) return 1;
    return 0;
}

int main(void) {
    char *m = fresh(PAGES);
    fill(m, PAGES * PAGE, 1);
    tmpdir();
    make_file("file", PAGE, 2);
    int fd = open("file", O_RDONLY);
    CHECK(fd >= 0);
    for (int i = 0; i < PLACES; i++) {
        /* A private mapping of a file, or anonymous memory for a stack: neither is managed. */
        int flags = MAP_PRIVATE | MAP_FIXED | (i % 2 ? MAP_ANONYMOUS | MAP_STACK : 0);
        char *at = m + places[i] * PAGE;
        EQ((intptr_t)mmap(at, PAGE, PROT_READ | PROT_WRITE, flags, i % 2 ? -1 : fd, 0), (intptr_t)at);
        fill(at, PAGE, 10 + i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        /* Whole blocks go, not the mappings of one call. */
        pressure(64);
        for (int i = 0; i < PLACES; i++) check(m + places[i] * PAGE, PAGE, 10 + i);
        /* From now on the others are known to be as they were. */
        for (int page = 0; page < PAGES; page++)
            if (!is_place(page)) check_from(m + page * PAGE, PAGE, 1, page * PAGE);
    }
    puts("ok");
    return 0;
}
