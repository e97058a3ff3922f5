/* A hundred threads, whose locks are on the heap, most of which wait while two hand a turn to and fro. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

enum { IDLE = 98, TURNS = 10000 };
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t came, end;
    sem_t there, back;
    int turn, ended;
} *l;

#define OK(call) ((call) == 0 ? (void)0 : abort())

static void *idles(void *unused) {
    OK(pthread_mutex_lock(&l->mutex));
    while (!l->ended) OK(pthread_cond_wait(&l->end, &l->mutex));
    OK(pthread_mutex_unlock(&l->mutex));
    return unused;
}
static void hand_on(int me) {
    for (int i = 0; i < TURNS; i++) {
        OK(pthread_mutex_lock(&l->mutex));
        while (l->turn % 2 != me) OK(pthread_cond_wait(&l->came, &l->mutex));
        l->turn++;
        OK(pthread_cond_signal(&l->came)), OK(pthread_mutex_unlock(&l->mutex));
        OK(sem_post(me ? &l->there : &l->back)), OK(sem_wait(me ? &l->back : &l->there));
    }
}
static void *other(void *unused) {
    hand_on(1);
    return unused;
}
int main(void) {
    pthread_t t[IDLE + 1];
    if (!(l = calloc(1, sizeof *l))) abort();
    OK(pthread_mutex_init(&l->mutex, NULL)), OK(pthread_cond_init(&l->came, NULL)), OK(pthread_cond_init(&l->end, NULL));
    OK(sem_init(&l->there, 0, 0)), OK(sem_init(&l->back, 0, 0));
    for (int i = 0; i <= IDLE; i++) OK(pthread_create(&t[i], NULL, i < IDLE ? idles : other, NULL));
    hand_on(0);
    OK(pthread_join(t[IDLE], NULL));
    OK(pthread_mutex_lock(&l->mutex));
    l->ended = 1;
    OK(pthread_cond_broadcast(&l->end)), OK(pthread_mutex_unlock(&l->mutex));
    for (int i = 0; i < IDLE; i++) OK(pthread_join(t[i], NULL));
    puts(l->turn == 2 * TURNS ? "ok" : "turns were lost");
    return 0;
}
