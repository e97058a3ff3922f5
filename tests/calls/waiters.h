/* Threads that wait in reads, each with a buffer in memory that was never touched, so that calls beside them get little of it at once. */
#ifndef WAITERS_H
#define WAITERS_H
#include "common.h"

enum { WAITERS = 24 };
static int waiter_pipes[WAITERS][2];
static pthread_t waiters[WAITERS];

static void *waits(void *number) {
    char *room = fresh(16);
    EQ(read(waiter_pipes[(long)number][0], room, 16 * PAGE), 1), EQ(*room, 'x');
    OK(munmap(room, 16 * PAGE));
    return NULL;
}
static void begin_waiting(void) {
    for (long i = 0; i < WAITERS; i++) OK(pipe(waiter_pipes[i])), OK(pthread_create(&waiters[i], NULL, waits, (void *)i));
    sleep_ms(100);
}
static void end_waiting(void) {
    for (int i = 0; i < WAITERS; i++) {
        EQ(write(waiter_pipes[i][1], "x", 1), 1), OK(pthread_join(waiters[i], NULL));
        OK(close(waiter_pipes[i][0])), OK(close(waiter_pipes[i][1]));
    }
}
#endif
