/* fork from several threads at once, while others write, evict, map and unmap. The child sees one moment of each
 * page. */
#include "common.h"

enum { WRITERS = 2, FORKERS = 2, FORKS = 15, PAGES = 64 };
static char *pages[WRITERS];
static volatile int stop;
static pthread_mutex_t locks[WRITERS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static volatile unsigned round_of[WRITERS];

/* Under its lock a writer's pages all belong to one round, which is why a forker takes all locks. */
static void *writer(void *arg) {
    long me = (long)arg;
    for (unsigned round = 1; !stop; round++) {
        pthread_mutex_lock(&locks[me]);
        fill(pages[me], PAGES * PAGE, round);
        round_of[me] = round;
        pthread_mutex_unlock(&locks[me]);
        evict(pages[me], PAGES * PAGE);
        char *other = fresh(16);
        fill(other, 16 * PAGE, round), evict(other, 16 * PAGE), check(other, 16 * PAGE, round);
        OK(munmap(other, 16 * PAGE));
    }
    return NULL;
}
static void *forker(void *arg) {
    for (int i = 0; i < FORKS; i++) {
        for (int j = 0; j < WRITERS; j++) pthread_mutex_lock(&locks[j]);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            for (int j = 0; j < WRITERS; j++) {
                evict(pages[j], PAGES * PAGE);
                check(pages[j], PAGES * PAGE, round_of[j]);
                fill(pages[j], PAGES * PAGE, 1000 + j), evict(pages[j], PAGES * PAGE);
                check(pages[j], PAGES * PAGE, 1000 + j);
            }
            char *p = malloc(100000);
            CHECK(p), fill(p, 100000, 5), check(p, 100000, 5), free(p);
            _exit(0);
        }
        for (int j = 0; j < WRITERS; j++) pthread_mutex_unlock(&locks[j]);
        expect_exit(pid, 0);
    }
    return arg;
}
int main(void) {
    tmpdir();
    pthread_t w[WRITERS], f[FORKERS];
    for (long i = 0; i < WRITERS; i++) pages[i] = fresh(PAGES), fill(pages[i], PAGES * PAGE, 0);
    for (long i = 0; i < WRITERS; i++) OK(pthread_create(w + i, NULL, writer, (void *)i));
    for (long i = 0; i < FORKERS; i++) OK(pthread_create(f + i, NULL, forker, NULL));
    for (int i = 0; i < FORKERS; i++) OK(pthread_join(f[i], NULL));
    stop = 1;
    for (int i = 0; i < WRITERS; i++) OK(pthread_join(w[i], NULL));
    puts("ok");
    return 0;
}
