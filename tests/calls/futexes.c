/* futex_wait, futex_wake, futex_waitv and futex_requeue: words, arrays, and words behind arrays. */
#include "alike.h"

struct waiter {
    uint64_t value, address;
    uint32_t flags, reserved;
};
enum { WAITV = 449, WAKE = 454, WAIT = 455, REQUEUE = 456, SIZE_32 = 2, PRIVATE = 128 };
static struct timespec *soon(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 20000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return in(&t, sizeof t);
}
static void *two(uint32_t value, int flags) {
    struct waiter list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (struct waiter){value, (uintptr_t)THE(uint32_t, 5), SIZE_32 | flags, 0};
    return in(list, sizeof list);
}
static struct waiter *waits;
static int woken;
static void *wait_for_two(void *unused) {
    (void)unused;
    woken = syscall(WAITV, waits, 2, 0, NULL, CLOCK_MONOTONIC);
    return NULL;
}
int main(void) {
    tmpdir();
    for (int flags = 0; flags <= PRIVATE; flags += PRIVATE) {
        /* Not the value: EAGAIN. The value: ETIMEDOUT, as nobody wakes. */
        ALIKE(syscall(WAITV, two(4, flags), 2, 0, NULL, CLOCK_MONOTONIC));
        ALIKE(syscall(WAITV, two(5, flags), 2, 0, soon(), CLOCK_MONOTONIC));
        ALIKE(syscall(WAIT, THE(uint32_t, 5), 4UL, ~0UL, SIZE_32 | flags, NULL, CLOCK_MONOTONIC));
        ALIKE(syscall(WAIT, THE(uint32_t, 5), 5UL, ~0UL, SIZE_32 | flags, soon(), CLOCK_MONOTONIC));
        ALIKE(syscall(WAKE, THE(uint32_t, 5), ~0UL, 1, SIZE_32 | flags));
        ALIKE(syscall(REQUEUE, two(5, flags), 0, 1, 1));
        ALIKE(syscall(REQUEUE, two(4, flags), 0, 1, 1));
    }
    BAD(syscall(WAITV, bad_in()[1], 2, 0, NULL, CLOCK_MONOTONIC));
    BAD(syscall(WAITV, bad_in()[2], 2, 0, NULL, CLOCK_MONOTONIC));
    in_evicted = 1;
    struct waiter bad = {5, (uintptr_t)bad_in()[2], SIZE_32 | PRIVATE, 0};
    BAD(syscall(WAITV, in(&bad, sizeof bad), 1, 0, NULL, CLOCK_MONOTONIC));
    waits = two(5, PRIVATE);
    errno = 0;
    if (syscall(WAITV, two(4, PRIVATE), 2, 0, NULL, CLOCK_MONOTONIC) == -1 && errno == EAGAIN) {
        /* Someone does wake the second. */
        pthread_t thread;
        OK(pthread_create(&thread, NULL, wait_for_two, NULL));
        uint32_t *word = (uint32_t *)waits[1].address;
        for (int tries = 0; tries < 10000; tries++) {
            if (syscall(SYS_futex, word, 1 | PRIVATE, 1, NULL, NULL, 0) == 1) break;
            CHECK(tries < 9999);
            sleep_ms(1);
        }
        OK(pthread_join(thread, NULL));
        EQ(woken, 1);
    }
    puts("ok");
    return 0;
}
