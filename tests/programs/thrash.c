/* thrash MIB SECONDS PASSES: fills so much memory, and then looks at pages of it at random; between any two of them it goes over one page so
 * often. Looks at what it finds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORDS = 512 };

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t pages = strtoul(argv[1], NULL, 10) << 8, passes = strtoul(argv[3], NULL, 10);
    time_t end = time(NULL) + atol(argv[2]);
    uint64_t *memory = malloc(pages * WORDS * sizeof *memory);
    if (!memory) return 3;
    for (size_t page = 0; page < pages; page++)
        for (size_t i = 0; i < WORDS; i++) memory[page * WORDS + i] = page << 32 | (i & 7);
    uint64_t random = 88172645463325252u, sum = 0;
    while (time(NULL) < end)
        for (int turn = 0; turn < 1000; turn++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            size_t page = random % pages;
            uint64_t *words = memory + page * WORDS;
            for (size_t i = 0; i < WORDS; i += 64)
                if (words[i] != (page << 32 | (i & 7))) return 4;
            for (size_t pass = 0; pass < passes; pass++)
                for (size_t i = 0; i < WORDS; i++) sum += *(volatile uint64_t *)&words[i];
        }
    puts(sum == 0 && passes > 0 ? "nothing" : "ok");
    return 0;
}
