/* Forked children that share most of their parent's memory end while the parent needs more: what it shared with them is its alone
 * then. */
#include "common.h"

enum { SHARED = 16 << 20, MORE = 24 << 20, CHILDREN = 4, ROUNDS = 8 };

int main(void) {
    char *shared = fresh(SHARED / PAGE), *more = fresh(MORE / PAGE);
    for (int round = 0; round < ROUNDS; round++) {
        noise(shared, SHARED, round);
        int ends[2];
        char bytes[CHILDREN] = {0};
        pid_t pids[CHILDREN];
        OK(pipe(ends));
        for (int i = 0; i < CHILDREN; i++)
            pids[i] = CHILD({
                close(ends[1]);
                EQ(read(ends[0], bytes, 1), 1);
            });
        close(ends[0]);
        noise(more, MORE / 3, round);
        EQ(write(ends[1], bytes, CHILDREN), CHILDREN);
        /* In every other round some end before they are waited for. */
        if (round % 2)
            for (int i = 0; i < CHILDREN; i++) expect_exit(pids[i], 0);
        noise(more + MORE / 3, MORE / 3 * 2, round);
        if (round % 2 == 0)
            for (int i = 0; i < CHILDREN; i++) expect_exit(pids[i], 0);
        check_noise(shared, SHARED, round), check_noise(more, MORE / 3, round);
        check_noise(more + MORE / 3, MORE / 3 * 2, round);
        close(ends[1]);
    }
    puts("ok");
    return 0;
}
