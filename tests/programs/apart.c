/* Memory in pieces of 16 KiB with as much between them that is not mapped, as Ruby's heap is where mappings come one above the other: filled, and
 * looked at in another order, twice. */
#include "../calls/common.h"

enum { PIECES = 4096, BYTES = 16 << 10, STEP = 389 };

int main(void) {
    static char *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) {
        char *at = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        OK(munmap(at, BYTES));
        fill(pieces[i] = at + BYTES, BYTES, i);
    }
    for (int i = 0; i < 2 * PIECES; i++) check(pieces[i * STEP % PIECES], BYTES, i * STEP % PIECES);
    puts("ok");
    return 0;
}
