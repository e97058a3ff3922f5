/* process_vm_readv and process_vm_writev on evicted memory of another process, and of this one, that is named by the number of a thread which
 * is not its first: to the kernel it is the same memory. */
#include "common.h"

enum { PAGES = 12 * 256, THREADS = 3, STEP = 300 };
#define BYTES (PAGES * PAGE)
struct told {
    char *memory;
    pid_t threads[THREADS];
};
static int says[2], goes[2], over[2];
static pid_t *ids;

static void *waits(void *id) {
    char byte;
    __atomic_store_n((pid_t *)id, syscall(SYS_gettid), __ATOMIC_RELEASE);
    /* Ends when whoever has the other end closes it. */
    EQ(read(over[0], &byte, 1), 0);
    return NULL;
}
static void begin(pthread_t *threads) {
    for (int i = 0; i < THREADS; i++) OK(pthread_create(threads + i, NULL, waits, ids + i));
    for (int i = 0; i < THREADS; i++)
        while (!__atomic_load_n(ids + i, __ATOMIC_ACQUIRE)) sched_yield();
}
/* All of what it has was written by then, and is out once more before that is seen. */
static void other(void) {
    struct told told = {fresh(PAGES), {0}};
    pthread_t threads[THREADS];
    char byte;
    OK(close(says[0])), OK(close(goes[1]));
    ids = told.threads;
    begin(threads);
    fill(told.memory, BYTES, 1), evict(told.memory, BYTES);
    EQ(write(says[1], &told, sizeof told), sizeof told);
    EQ(read(goes[0], &byte, 1), 1);
    evict_some(told.memory, BYTES);
    check(told.memory, BYTES, 2);
    OK(close(over[1]));
    for (int i = 0; i < THREADS; i++) OK(pthread_join(threads[i], NULL));
}
/* Moves all, each piece by the number of another thread. Of two buffers each, which do not agree. */
static void move(int writes, const pid_t *threads, char *here, char *there) {
    size_t part, i = 0;
    for (size_t done = 0; done < BYTES; done += part, i++) {
        part = BYTES - done < STEP * PAGE + 123 ? BYTES - done : STEP * PAGE + 123;
        struct iovec local[2] = {{here + done, part / 3}, {here + done + part / 3, part - part / 3}};
        struct iovec remote[2] = {{there + done, part / 2}, {there + done + part / 2, part - part / 2}};
        pid_t id = threads[i % THREADS];
        if (writes) EQ(process_vm_writev(id, arg(local, sizeof local), 2, arg(remote, sizeof remote), 2, 0), part);
        else EQ(process_vm_readv(id, local, 2, remote, 2, 0), part);
    }
}
/* What nobody has cannot be moved either. */
static void refused(const pid_t *threads, char *here) {
    for (int i = 0; i < THREADS; i++) {
        struct iovec local = {here, PAGE}, remote = {(void *)8, PAGE};
        expect_errno(process_vm_readv(threads[i], &local, 1, &remote, 1, 0), EFAULT);
        expect_errno(process_vm_writev(threads[i], &local, 1, &remote, 1, 0), EFAULT);
        expect_errno(process_vm_readv(threads[i], &local, 1, &remote, 1, 1), EINVAL);
    }
}
static void of_another(char *mine) {
    struct told told;
    OK(pipe(says)), OK(pipe(goes)), OK(pipe(over));
    pid_t child = CHILD(other());
    OK(close(says[1])), OK(close(goes[0])), OK(close(over[0])), OK(close(over[1]));
    EQ(read(says[0], &told, sizeof told), sizeof told);
    for (int i = 0; i < THREADS; i++) CHECK(told.threads[i] != child);
    memset(mine, 0xff, BYTES), evict(mine, BYTES);
    move(0, told.threads, mine, told.memory);
    evict(mine, BYTES), check(mine, BYTES, 1);
    refused(told.threads, mine);
    fill(mine, BYTES, 2), evict(mine, BYTES);
    move(1, told.threads, mine, told.memory);
    EQ(write(goes[1], "x", 1), 1);
    expect_exit(child, 0);
    check(mine, BYTES, 2);
    struct iovec local = {mine, PAGE}, remote = {told.memory, PAGE};
    expect_errno(process_vm_readv(told.threads[0], &local, 1, &remote, 1, 0), ESRCH);
    OK(close(says[0])), OK(close(goes[1]));
}
static void of_its_own(char *mine) {
    pid_t own[THREADS] = {0};
    pthread_t threads[THREADS];
    char *other = fresh(PAGES);
    ids = own;
    OK(pipe(over));
    begin(threads);
    fill(other, BYTES, 3), evict(other, BYTES), evict(mine, BYTES);
    move(0, own, mine, other);
    evict(mine, BYTES), check(mine, BYTES, 3);
    fill(mine, BYTES, 4), evict(mine, BYTES), evict(other, BYTES);
    move(1, own, mine, other);
    check(other, BYTES, 4), refused(own, mine);
    OK(close(over[1]));
    for (int i = 0; i < THREADS; i++) OK(pthread_join(threads[i], NULL));
    OK(close(over[0])), OK(munmap(other, BYTES));
}
int main(void) {
    alarm(60);
    char *mine = fresh(PAGES);
    of_another(mine);
    of_its_own(mine);
    puts("ok");
    return 0;
}
