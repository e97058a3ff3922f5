/* A process that shares memory has threads of its own: they find all as it was, and so does its parent, which works meanwhile. */
#include "common.h"

enum { PAGES = 1024, STACK = 64 << 10, ROUNDS = 20, THREADS = 3 };
static char *area, *stacks;
static _Atomic int ended, begun;

static void look(size_t me) {
    uint64_t x = me * 7919 + 1;
    for (int i = 0; i < 1000; i++) {
        size_t page = (next_random(&x) >> 20) % PAGES;
        EQ(*(volatile size_t *)(area + page * PAGE + 8 * me), page + me);
    }
}
static int thread(void *arg) {
    begun++;
    look((size_t)arg);
    ended++;
    /* Not by way of the C library, which knows nothing of this thread. */
    syscall(SYS_exit, 0);
    return 0;
}
static int process(void *arg) {
    (void)arg;
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    for (size_t i = 0; i < THREADS; i++) CHECK(clone(thread, stacks + (i + 2) * STACK, flags, (void *)(i + 1)) > 0);
    look(THREADS + 1);
    while (ended < THREADS) syscall(SYS_sched_yield);
    syscall(SYS_exit_group, 5);
    return 0;
}
int main(void) {
    tmpdir();
    area = fresh(PAGES);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK;
    stacks = mmap(NULL, (THREADS + 1) * STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(stacks != MAP_FAILED);
    for (size_t i = 0; i < PAGES; i++)
        for (size_t k = 0; k < THREADS + 2; k++) *(size_t *)(area + i * PAGE + 8 * k) = i + k;
    for (int round = 0; round < ROUNDS; round++) {
        ended = begun = 0;
        pid_t pid = clone(process, stacks + STACK, CLONE_VM | SIGCHLD, NULL);
        CHECK(pid > 0);
        int status = 0;
        while (ended < THREADS && waitpid(pid, &status, WNOHANG) == 0) evict_some(area, PAGES * PAGE);
        if (status == 0) EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
        EQ(begun, THREADS);
        look(0);
    }
    puts("ok");
    return 0;
}
