/* Writes bytes to itself and reads them, 10,000 times, with memory that is there. */
#include <stdlib.h>
#include <unistd.h>

enum { TIMES = 10000, BYTES = 64 };

int main(void) {
    int ends[2];
    char *memory = calloc(1, 1 << 20);
    if (!memory || pipe(ends)) return 1;
    for (int i = 0; i < TIMES; i++) {
        memory[9] = (char)i;
        if (write(ends[1], memory, BYTES) != BYTES || read(ends[0], memory + 9000, BYTES) != BYTES) return 2;
        if (memory[9009] != (char)i) return 3;
    }
    return write(1, "ok\n", 3) != 3;
}
