/* To be built with a sanitizer: uses memory, from two threads, and with the argument `leak` forgets two pieces of it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *use(void *unused) {
    unsigned sum = 0;
    for (int i = 0; i < 200; i++) {
        unsigned char *p = malloc(100000);
        memset(p, i, 100000);
        sum += p[99999];
        free(p);
    }
    return unused ? NULL : (void *)(size_t)sum;
}

static void *volatile forgotten;

static __attribute__((noinline)) void forget(int pieces) {
    for (int i = 0; i < pieces; i++) forgotten = malloc(1024);
    forgotten = NULL;
}

/* What a call leaves on the stack is looked at for pointers, too. */
static __attribute__((noinline)) void wipe(void) {
    volatile char room[4096];
    memset((void *)room, 0, sizeof room);
}

int main(int argc, char **argv) {
    pthread_t thread;
    void *sum;
    if (pthread_create(&thread, NULL, use, NULL) || pthread_join(thread, &sum)) return 1;
    if (use(NULL) != sum) return 2;
    if (argc > 1 && !strcmp(argv[1], "leak")) forget(2);
    wipe();
    puts("ok");
    return 0;
}
