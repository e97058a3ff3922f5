/* own_calls LIBRARY: opens own_calls_library.c with threads there, and has it block all signals, handle those that the runtime needs, fork, and
 * close all descriptors in the child, by instructions of its own, while most of its memory is evicted. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s\n", __LINE__, #what); \
            fflush(stdout); \
            _exit(1); \
        } \
    } while (0)

enum { BYTES = 32 << 20, STEP = 1024 };
static uint64_t *area;
static long (*mask)(int, const uint64_t *, uint64_t *), (*own_fork)(void), (*action)(int, const void *, void *);
static long (*own_stack)(const stack_t *, stack_t *);
static void (*close_all)(int);

static void fill(uint64_t seed) {
    for (size_t i = 0; i < BYTES / 8; i += STEP / 8) area[i] = (i + seed) * 0x9e3779b97f4a7c15u;
}
static int right(uint64_t seed) {
    for (size_t i = 0; i < BYTES / 8; i += STEP / 8)
        if (area[i] != (i + seed) * 0x9e3779b97f4a7c15u) return 0;
    return 1;
}
static void *waits(void *stop) {
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) usleep(1000);
    return NULL;
}
/* As the kernel has it. */
struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t set;
};
static sigjmp_buf out;
static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (signal != SIGSEGV || info->si_addr != (void *)64) _exit(3);
    siglongjmp(out, 1);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    area = malloc(BYTES);
    CHECK(area);
    fill(1);
    int stop = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits, &stop) == 0);
    for (uint64_t round = 1; round <= 2; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        CHECK(library);
        *(void **)&mask = dlsym(library, "own_mask");
        *(void **)&own_fork = dlsym(library, "own_fork");
        *(void **)&action = dlsym(library, "own_action");
        *(void **)&own_stack = dlsym(library, "own_stack");
        *(void **)&close_all = dlsym(library, "own_close_all");
        CHECK(mask && own_fork && action && own_stack && close_all);

        uint64_t all = ~0ul, before = 1, now = 0;
        CHECK(mask(SIG_SETMASK, &all, &before) == 0);
        CHECK(before == 0);
        CHECK(right(round));
        fill(round + 1);
        CHECK(mask(SIG_SETMASK, &before, &now) == 0);
        /* But those two that nobody blocks. */
        CHECK(now == (all & ~(1ul << (SIGKILL - 1)) & ~(1ul << (SIGSTOP - 1))));

        struct kernel_action old;
        struct sigaction usual = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
        CHECK(sigaction(SIGSEGV, &usual, NULL) == 0);
        CHECK(action(SIGSEGV, NULL, &old) == 0);
        CHECK(old.handler == on_fault);
        CHECK(action(SIGBUS, &old, NULL) == 0);
        CHECK(action(SIGSYS, &old, NULL) == 0);
        CHECK(right(round + 1));
        if (!sigsetjmp(out, 1)) {
            *(volatile int *)64 = 1;
            CHECK(!"it is handled");
        }
        stack_t stack;
        CHECK(own_stack(NULL, &stack) == 0);
        CHECK(stack.ss_flags == SS_DISABLE);

        long child = own_fork();
        CHECK(child >= 0);
        if (child == 0) {
            close_all(1 << 16);
            CHECK(right(round + 1));
            fill(100);
            CHECK(right(100));
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid((pid_t)child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(right(round + 1));
        CHECK(dlclose(library) == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    puts("ok");
    return 0;
}
