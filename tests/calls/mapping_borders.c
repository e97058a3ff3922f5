/* Memory that the kernel keeps as many mappings, though the program sees one: pages that are left out of core dumps, that had
 * another access for a while, before a fork and after it. All of it is read in order, and is what was written. */
#include "common.h"

enum { AREA = 44 << 20, BLOCK = 256 << 10 };
static char *area;

static void each_block(size_t page, int advice) {
    for (size_t at = page * PAGE; at < AREA; at += BLOCK) OK(madvise(area + at, PAGE, advice));
}
static void each_17th(int prot) {
    for (size_t at = 0; at < AREA; at += 17 * PAGE) OK(mprotect(area + at, PAGE, prot));
}
int main(void) {
    tmpdir();
    area = fresh(AREA / PAGE);
    /* At every place that a stream which enters a block brings in at once. */
    const size_t pages[] = {1, 2, 3, 5, 15, 63};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        noise(area, AREA, i);
        each_block(pages[i], MADV_DONTDUMP), check_noise(area, AREA, i), check_noise(area, AREA, i);
        /* First touched in order. */
        OK(madvise(area, AREA, MADV_DONTNEED)), noise(area, AREA, i + 100), check_noise(area, AREA, i + 100);
        each_block(pages[i], MADV_DODUMP), check_noise(area, AREA, i + 100);
    }
    noise(area, AREA, 7);
    each_17th(PROT_NONE);
    pid_t pid = CHILD({
        OK(mprotect(area, AREA, PROT_READ | PROT_WRITE));
        check_noise(area, AREA, 7), noise(area, AREA, 8), check_noise(area, AREA, 8);
    });
    expect_exit(pid, 0);
    each_17th(PROT_READ), check_noise(area, AREA, 7);
    /* The kernel joins nothing that was written in different processes. */
    each_17th(PROT_READ | PROT_WRITE);
    for (size_t at = 0; at < AREA; at += 17 * PAGE) area[at]++, area[at]--;
    expect_exit(CHILD({ check_noise(area, AREA, 7), noise(area, AREA, 9), check_noise(area, AREA, 9); }), 0);
    check_noise(area, AREA, 7);
    puts("ok");
    return 0;
}
