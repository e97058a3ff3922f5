/* beside OWN_MIB CHILD_MIB MS: a process that goes over all of its memory again and again, with a little rest each time, beside a child that does so
 * without rest, for so long. Each counts in every page how often it was there, and looks whether it was. */
#include "../calls/common.h"

enum { WORDS = PAGE / 8 };

static void go_over(size_t pages, long ms, long rest_us) {
    uint64_t(*at)[WORDS] = malloc(pages * PAGE), x = 1;
    CHECK(at);
    for (size_t i = 0; i < pages; i++)
        for (size_t k = 0; k < WORDS; k++) at[i][k] = k % 2 ? next_random(&x) : 0;
    struct timespec start, now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
    for (uint64_t round = 0;; round++) {
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >= ms) break;
        for (size_t i = 0; i < pages; i++) {
            EQ(at[i][0], round), EQ(at[i][WORDS - 2], round);
            at[i][0]++, at[i][WORDS - 2]++;
        }
        if (rest_us) usleep(rest_us);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    pid_t pid = fork();
    CHECK(pid >= 0);
    go_over(atol(argv[pid ? 1 : 2]) * MIB / PAGE, atol(argv[3]), pid ? 300 : 0);
    if (!pid) _exit(0);
    int status;
    EQ(waitpid(pid, &status, 0), pid), EQ(status, 0);
    puts("ok");
    return 0;
}
