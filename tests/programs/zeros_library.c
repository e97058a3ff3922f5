/* A library with many zeros, for programs that open it: see opens.c. */
#include <stddef.h>

enum { BYTES = 24 << 20 };
static unsigned char zeros[BYTES];
unsigned char *zeros_at(void) { return zeros; }
size_t zeros_bytes(void) { return BYTES; }

/* By code of the library itself. */
void zeros_fill(unsigned long seed) {
    for (size_t i = 0; i < BYTES; i += 64) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        zeros[i] = (unsigned char)(seed >> 56);
    }
}

/* The first byte that is not what zeros_fill(seed) wrote, or zeros_bytes(). */
size_t zeros_wrong(unsigned long seed) {
    for (size_t i = 0; i < BYTES; i += 64) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        if (zeros[i] != (unsigned char)(seed >> 56)) return i;
    }
    return BYTES;
}
