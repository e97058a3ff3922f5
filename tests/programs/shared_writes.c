/* shared_writes MIB HOT_MIB MS: fills memory with words that do not compress well, forks, and for so long the parent writes to the last HOT_MIB
 * of it, page by page, while the child reads all of it, again and again. Each looks at what it has. Nothing of what they share is freed by
 * the one alone. */
#include "../calls/common.h"

enum { WORDS = PAGE / 8 };

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t pages = atol(argv[1]) * MIB / PAGE, hot = atol(argv[2]) * MIB / PAGE;
    uint64_t(*at)[WORDS] = malloc(pages * PAGE), x = 1, written = 0, sum = 0;
    CHECK(at && hot <= pages);
    for (size_t i = 0; i < pages; i++)
        for (size_t k = 0; k < WORDS - 1; k++) at[i][k] = k % 2 ? next_random(&x) : i;
    pid_t pid = fork();
    CHECK(pid >= 0);
    struct timespec start, now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
    for (size_t next = 0;;) {
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >= atol(argv[3])) break;
        for (int n = 0; n < 4096; n++) {
            size_t i = pid ? pages - 1 - next++ % hot : next++ % pages;
            EQ(at[i][0], i);
            if (pid) at[i][WORDS - 1]++, written++;
            else EQ(at[i][WORDS - 1], 0);
        }
    }
    if (!pid) return 0;
    int status;
    EQ(waitpid(pid, &status, 0), pid), EQ(status, 0);
    for (size_t i = 0; i < pages; i++) {
        EQ(at[i][0], i);
        sum += at[i][WORDS - 1];
    }
    EQ(sum, written);
    puts("ok");
    return 0;
}
