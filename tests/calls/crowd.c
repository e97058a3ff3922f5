/* Hundreds of calls that wait at the same time, each with a buffer of its own: what is kept for calls in progress grows with them, also
 * in a process that may make no code of its memory any more. */
#include "common.h"
#include <sys/prctl.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

enum { FEW = 150, MANY = 500, OTHERS = 64, BYTES = 3000, STACK_BYTES = 1 << 16 };

static struct reader {
    pthread_t thread;
    int pipe[2];
    char *buffer;
} readers[MANY];

static void *wait_for_bytes(void *arg) {
    struct reader *r = arg;
    /* Two buffers: whoever looks at the first alone leaves the second where it is. */
    struct iovec parts[2] = {{r->buffer, BYTES / 2}, {r->buffer + PAGE + 1, BYTES / 2}};
    EQ(syscall(SYS_readv, r->pipe[0], parts, 2), BYTES);
    return NULL;
}

static void crowd(int count) {
    char *all = fresh(2 * count + OTHERS), *others = all + 2 * count * PAGE, bytes[BYTES];
    memset(others, 7, OTHERS * PAGE);
    pthread_attr_t small;
    OK(pthread_attr_init(&small));
    OK(pthread_attr_setstacksize(&small, STACK_BYTES));
    for (int i = 0; i < count; i++) {
        readers[i].buffer = all + i * 2 * PAGE;
        OK(pipe(readers[i].pipe));
        OK(pthread_create(&readers[i].thread, &small, wait_for_bytes, &readers[i]));
    }
    /* All of them wait, or nearly; what they wait with stays, while the others go. */
    for (int i = 0; i < 50; i++) sched_yield();
    usleep(20000);
    evict(all, (2 * count + OTHERS) * PAGE);
    for (int i = count - 1; i >= 0; i--) {
        for (int k = 0; k < BYTES; k++) bytes[k] = (char)(i * 7 + k);
        EQ(write(readers[i].pipe[1], bytes, BYTES), BYTES);
    }
    for (int i = 0; i < count; i++) {
        OK(pthread_join(readers[i].thread, NULL));
        for (int k = 0; k < BYTES / 2; k++) {
            EQ(readers[i].buffer[k], (char)(i * 7 + k));
            EQ(readers[i].buffer[PAGE + 1 + k], (char)(i * 7 + BYTES / 2 + k));
        }
        OK(close(readers[i].pipe[0]));
        OK(close(readers[i].pipe[1]));
    }
    for (size_t i = 0; i < OTHERS * PAGE; i++) EQ(others[i], 7);
    OK(munmap(all, (2 * count + OTHERS) * PAGE));
}

int main(void) {
    struct rlimit files;
    OK(getrlimit(RLIMIT_NOFILE, &files));
    int most = files.rlim_cur < 2 * MANY + 100 ? (int)(files.rlim_cur - 100) / 2 : MANY;
    crowd(most < FEW ? most : FEW);
    /* Where the kernel knows it. */
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) < 0) CHECK(errno == EINVAL);
    crowd(most);
    puts("ok");
    return 0;
}
