/* Threads that come and go, several at a time: what is kept for each is kept for those that there are, so that the number of mappings does
 * not grow with each that ever was. And hundreds that are made by several others at once, and wait for a lock in the heap: what their calls need
 * grows while they come. */
#include "common.h"

enum { AT_ONCE = 8, ROUNDS = 300, MOST_MAPPINGS = 600, MAKERS = 6, EACH = 50, CROWDS = 8 };

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

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int there;
};
static void *waits(void *arg) {
    struct shared *s = arg;
    struct timespec end = {.tv_sec = time(NULL) + 300};
    OK(pthread_mutex_lock(&s->lock));
    if (++s->there == MAKERS * EACH) OK(pthread_cond_broadcast(&s->all));
    while (s->there < MAKERS * EACH) OK(pthread_cond_timedwait(&s->all, &s->lock, &end));
    OK(pthread_mutex_unlock(&s->lock));
    return NULL;
}
static void *makes(void *arg) {
    pthread_t made[EACH];
    pthread_attr_t small;
    OK(pthread_attr_init(&small)), OK(pthread_attr_setstacksize(&small, 1 << 16));
    for (int i = 0; i < EACH; i++) OK(pthread_create(&made[i], &small, waits, arg));
    for (int i = 0; i < EACH; i++) OK(pthread_join(made[i], NULL));
    return NULL;
}
/* In a program of its own, since what has grown stays so. */
static int crowd(void) {
    pthread_t makers[MAKERS];
    struct shared *s = (struct shared *)heap(sizeof *s);
    OK(pthread_mutex_init(&s->lock, NULL)), OK(pthread_cond_init(&s->all, NULL)), s->there = 0;
    for (int i = 0; i < MAKERS; i++) OK(pthread_create(&makers[i], NULL, makes, s));
    for (int i = 0; i < MAKERS; i++) OK(pthread_join(makers[i], NULL));
    EQ(s->there, MAKERS * EACH);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return crowd();
    for (int i = 0; i < CROWDS; i++) expect_exit(CHILD({ execl("/proc/self/exe", argv[0], "crowd", NULL); }), 0);
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
