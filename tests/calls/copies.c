/* Forked children write to what they share with their parent, all of it and at once, and the parent does, too: each has it alone
 * then. Nobody tells of the copies that the kernel makes, and all the same the limit of 32 MiB holds. */
#include "common.h"

enum { SHARED = 20 << 20, CHILDREN = 3, ROUNDS = 2, PASSES = 1 };

/* Changes a byte of each page, so that a second time undoes the first. */
static void change_all(char *at, int mark) {
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < SHARED; i += PAGE) at[i + mark % PAGE] ^= (char)(mark + pass + 1);
}

int main(void) {
    char *shared = fresh(SHARED / PAGE);
    noise(shared, SHARED, 1);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[CHILDREN];
        for (int i = 0; i < CHILDREN; i++)
            pids[i] = CHILD({
                change_all(shared, 10 * round + i);
                /* A call that writes meets no page that is held. */
                int zeros = open("/dev/zero", O_RDONLY);
                char saved[3 * PAGE];
                memcpy(saved, shared + 5 * PAGE, sizeof saved);
                EQ(read(zeros, shared + 5 * PAGE, sizeof saved), sizeof saved);
                for (size_t at = 0; at < sizeof saved; at++) EQ(shared[5 * PAGE + at], 0);
                memcpy(shared + 5 * PAGE, saved, sizeof saved);
                change_all(shared, 10 * round + i);
                check_noise(shared, SHARED, 1);
            });
        change_all(shared, 1000 + round);
        change_all(shared, 1000 + round);
        for (int i = 0; i < CHILDREN; i++) expect_exit(pids[i], 0);
        check_noise(shared, SHARED, 1);
    }
    puts("ok");
    return 0;
}
