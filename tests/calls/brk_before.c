/* A program whose heap exists before anything else has run: the C library has the kernel's break. With --malloc keep its heap
   goes on elsewhere. */
#include "common.h"

static char *early;
static void before_all(void) { early = malloc(1000); }
__attribute__((section(".preinit_array"), used)) static void (*const run_before_all)(void) = before_all;

int main(void) {
    enum { BLOCKS = 4000, BYTES = 3000 };
    static unsigned char *blocks[BLOCKS];
    tmpdir();
    evict(place(1, 1), 1), (void)bad_in();
    for (size_t i = 0; i < 1000; i++)
        early[i] = (char)i;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], i & 0xff, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < BYTES; j++)
            EQ(blocks[i][j], i & 0xff);
    for (size_t i = 0; i < 1000; i++)
        EQ(early[i], (char)i);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(early);
    /* The break can be asked for, and given back to. */
    char *now = sbrk(0);
    CHECK(now != (char *)-1);
    puts("ok");
    return 0;
}
