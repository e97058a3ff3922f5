/* Children that exec this program again, in chains and many at once, and what they hand back through pipes. */
#include "common.h"

enum { PAGES = 512 };
static int work(unsigned seed) {
    char *p = fresh(PAGES);
    fill(p, PAGES * PAGE, seed), evict(p, PAGES * PAGE), check(p, PAGES * PAGE, seed);
    write_all(1, p, PAGES * PAGE);
    return 0;
}
int main(int argc, char **argv) {
    char self[PATH_MAX], text[32];
    CHECK(realpath("/proc/self/exe", self));
    if (argc == 3 && !strcmp(argv[1], "chain") && atoi(argv[2]) > 0) {
        /* exec without fork: nothing of the old memory may show. */
        char *p = fresh(PAGES);
        check_zero(p, PAGES * PAGE);
        fill(p, PAGES * PAGE, 1), evict(p, PAGES * PAGE);
        snprintf(text, sizeof text, "%d", atoi(argv[2]) - 1);
        execl(self, self, "chain", str(text), NULL);
        return 99;
    }
    if (argc == 3) return work(77);
    if (argc == 2) return work(atoi(argv[1]));
    tmpdir();
    enum { CHILDREN = 6 };
    int pipes[CHILDREN][2];
    pid_t pids[CHILDREN];
    char *mine = fresh(PAGES), *p = fresh(PAGES);
    fill(mine, PAGES * PAGE, 50), evict(mine, PAGES * PAGE);
    for (int i = 0; i < CHILDREN; i++) {
        OK(pipe2(pipes[i], O_CLOEXEC));
        pids[i] = fork();
        if (!pids[i]) {
            dup2(pipes[i][1], 1);
            check(mine, PAGES * PAGE, 50);
            snprintf(text, sizeof text, "%d", i == 0 ? 5 : i);
            if (i == 0)
                execl(self, self, "chain", str(text), NULL);
            else
                execl(self, self, str(text), NULL);
            _exit(99);
        }
        close(pipes[i][1]);
    }
    for (int i = 0; i < CHILDREN; i++) {
        evict(p, PAGES * PAGE);
        EQ(read_all(pipes[i][0], p, PAGES * PAGE), PAGES * PAGE);
        check(p, PAGES * PAGE, i == 0 ? 77 : i);
        expect_exit(pids[i], 0);
    }
    check(mine, PAGES * PAGE, 50);
    puts("ok");
    return 0;
}
