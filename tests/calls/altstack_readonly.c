/* A handler runs on an alternate stack that another thread makes read-only and writable again and again, as often as not while
 * the handler returns: that only reads the frame. Where there is no room for one, the handler of SIGSEGV runs on the normal
 * stack instead. (LTP's signal06 found it.) */
#include "common.h"
#include <pthread.h>

enum { LOOPS = 20000 };
static char fixed[64 << 10] __attribute__((aligned(4096)));
static char *stack;
static volatile int over;
static volatile int refused, ran;

/* Without a frame of its own: nothing is written to the stack here. */
__attribute__((naked)) static void on_usr1(int s) {
    (void)s;
    __asm__("lock incl ran(%rip)\n\tret");
}
static void on_segv(int s) {
    (void)s;
    refused++;
}
static void *flip(void *unused) {
    (void)unused;
    while (!over) {
        if (mprotect(stack, sizeof fixed, PROT_READ) || mprotect(stack, sizeof fixed, PROT_READ | PROT_WRITE)) abort();
    }
    return NULL;
}
static void rounds(char *on) {
    stack = on;
    over = refused = ran = 0;
    stack_t st = {.ss_sp = stack, .ss_size = sizeof fixed};
    OK(sigaltstack(&st, NULL));
    pthread_t t;
    EQ(pthread_create(&t, NULL, flip, NULL), 0);
    for (int i = 0; i < LOOPS; i++) OK(raise(SIGUSR1));
    over = 1;
    EQ(pthread_join(t, NULL), 0);
    CHECK(ran > 0);
    CHECK(ran + refused >= LOOPS);
}
int main(void) {
    struct sigaction sa = {.sa_handler = on_segv};
    OK(sigaction(SIGSEGV, &sa, NULL));
    sa.sa_handler = on_usr1, sa.sa_flags = SA_ONSTACK;
    OK(sigaction(SIGUSR1, &sa, NULL));
    pressure(36);
    rounds(fixed);
    rounds(mmap(NULL, sizeof fixed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    puts("ok");
    return 0;
}
