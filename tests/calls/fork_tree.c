/* Children of children, each with exactly its own data, while other threads of each process fault and evict. */
#include "common.h"

enum { PAGES = 256, DEPTH = 4 };
static char *busy;
static volatile int stop;
static void *churn(void *arg) {
    for (unsigned i = 0; !stop; i++) {
        evict(busy, 64 * PAGE);
        check_from(busy + (i % 64) * PAGE, PAGE, 7, (i % 64) * PAGE);
    }
    return arg;
}
static void node(char *p, unsigned name, int depth) {
    pid_t pids[2];
    pthread_t t;
    stop = 0;
    OK(pthread_create(&t, NULL, churn, NULL));
    for (int i = 0; i < 2 && depth < DEPTH; i++) {
        evict(p, (i ? PAGES : PAGES / 2) * PAGE);
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (!pids[i]) {
            unsigned mine = name * 2 + i;
            check(p, PAGES * PAGE, name);
            /* Only a part is changed, so that the rest stays shared with all ancestors. */
            check(busy, 64 * PAGE, 7);
            fill(p, PAGES * PAGE / 2, mine);
            evict(p, PAGES * PAGE);
            check(p, PAGES * PAGE / 2, mine),
                check_from(p + PAGES * PAGE / 2, PAGES * PAGE / 2, name, PAGES * PAGE / 2);
            fill(p, PAGES * PAGE, mine);
            node(p, mine, depth + 1);
            _exit(0);
        }
        /* The parent changes and restores while its child reads. */
        fill(p, PAGES * PAGE / 4, name + 100), evict(p, PAGES * PAGE);
        check(p, PAGES * PAGE / 4, name + 100);
        fill(p, PAGES * PAGE / 4, name);
    }
    for (int i = 0; i < 2 && depth < DEPTH; i++) expect_exit(pids[i], 0);
    check(p, PAGES * PAGE, name);
    stop = 1;
    OK(pthread_join(t, NULL));
}
int main(void) {
    tmpdir();
    char *p = fresh(PAGES);
    busy = fresh(64);
    fill(p, PAGES * PAGE, 1), fill(busy, 64 * PAGE, 7), evict(p, PAGES * PAGE);
    node(p, 1, 1);
    puts("ok");
    return 0;
}
