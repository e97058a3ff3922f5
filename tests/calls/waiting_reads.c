/* Many threads that wait, each with a large buffer that it has not touched: all of them come to their data, and to their end. */
#include "common.h"

enum { THREADS = 300, BYTES = 1 << 20, STACK = 64 << 10 };
static int ends[THREADS][2];

static void *waits(void *number) {
    long i = (long)number;
    char *room = fresh(BYTES / PAGE);
    struct iovec parts[2] = {{room, BYTES / 2}, {room + BYTES / 2, BYTES / 2}};
    for (int turn = 0; turn < 2; turn++) {
        long n = i % 3 == 0 ? readv(ends[i][1], parts, 2) : i % 3 == 1 ? read(ends[i][1], room, BYTES) : recv(ends[i][1], room, BYTES, 0);
        if (turn == 0) EQ(n, 100), check(room, 100, (unsigned)i);
        else EQ(n, 0);
    }
    OK(munmap(room, BYTES));
    return NULL;
}

int main(void) {
    struct rlimit files;
    OK(getrlimit(RLIMIT_NOFILE, &files));
    int threads = files.rlim_cur < 2 * THREADS + 100 ? (int)files.rlim_cur / 2 - 50 : THREADS;
    char *memory = fresh(256);
    fill(memory, 256 * PAGE, 1), evict(memory, 256 * PAGE);
    pthread_t all[THREADS];
    pthread_attr_t small;
    OK(pthread_attr_init(&small)), OK(pthread_attr_setstacksize(&small, STACK));
    for (long i = 0; i < threads; i++) {
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
        OK(pthread_create(&all[i], &small, waits, (void *)i));
    }
    sleep_ms(300);
    check(memory, 256 * PAGE, 1);
    for (int i = 0; i < threads; i++) {
        char some[100];
        fill(some, sizeof some, (unsigned)i);
        EQ(write(ends[i][0], some, sizeof some), sizeof some);
    }
    for (int i = 0; i < threads; i++) OK(close(ends[i][0])), OK(pthread_join(all[i], NULL)), OK(close(ends[i][1]));
    check(memory, 256 * PAGE, 1);
    puts("ok");
    return 0;
}
