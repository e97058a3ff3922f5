/* Threads that come and go, several at a time: what is kept for each is kept for those that there are, so that the number of mappings does
 * not grow with each that ever was. */
#include "common.h"

enum { AT_ONCE = 8, ROUNDS = 300, MOST_MAPPINGS = 600 };

/* A page for each. */
static void *one(void *page) {
    ++*(int *)page;
    return NULL;
}

static int mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    int lines = 0;
    CHECK(maps);
    for (int c; (c = getc(maps)) != EOF;) lines += c == '\n';
    CHECK(fclose(maps) == 0);
    return lines;
}

int main(void) {
    pthread_t threads[AT_ONCE];
    char *count = fresh(AT_ONCE);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_ONCE; i++) EQ(pthread_create(&threads[i], NULL, one, count + i * PAGE), 0);
        for (int i = 0; i < AT_ONCE; i++) EQ(pthread_join(threads[i], NULL), 0);
        if (round % 50 == 0) evict(count, AT_ONCE * PAGE);
    }
    for (int i = 0; i < AT_ONCE; i++) EQ(*(int *)(count + i * PAGE), ROUNDS);
    CHECK(mappings() < MOST_MAPPINGS);
    puts("ok");
    return 0;
}
