/* SIGBUS and SIGSEGV that others send, at any time: while a call's memory is brought in, which does not end with EINTR for it, and while a
 * signal's frame is copied to an alternate stack that is evicted, or from there. */
#include "common.h"

enum { STACK_PAGES = 16, PIECE_BYTES = 64 << 10, ROUNDS = 1500 };
static volatile int stop;
static volatile sig_atomic_t got[64];
static char *stack;

static void count(int signal) { got[signal]++; }
static void count_in_full(int signal, siginfo_t *info, void *context) {
    (void)info;
    /* Held until this returns; and what it returns by is out. */
    if (got[signal]++ % 4 == 0) raise(SIGBUS);
    uintptr_t page = (uintptr_t)((ucontext_t *)context)->uc_mcontext.fpregs & ~(PAGE - 1);
    evict_some((void *)page, PAGE);
}
static void *sends(void *arg) {
    pthread_t to = *(pthread_t *)arg;
    static const int signals[] = {SIGBUS, SIGUSR1, SIGSEGV};
    for (int i = 0; !stop; i++) {
        OK(pthread_kill(to, signals[i % 3]));
        usleep(50);
    }
    return NULL;
}
static void handle(int signal, int flags, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    OK(sigaction(signal, &action, NULL));
}
int main(void) {
    tmpdir();
    stack = fresh(STACK_PAGES);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK_PAGES * PAGE};
    OK(sigaltstack(&alternate, NULL));
    handle(SIGBUS, SA_ONSTACK, count), handle(SIGSEGV, 0, count);
    struct sigaction full = {.sa_sigaction = count_in_full, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    OK(sigfillset(&full.sa_mask)), OK(sigaction(SIGUSR1, &full, NULL));
    /* A file ends no call for a signal. */
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    char *p = fresh(PIECE_BYTES / PAGE);
    fill(p, PIECE_BYTES, 3);
    pthread_t self = pthread_self(), t;
    OK(pthread_create(&t, NULL, sends, &self));
    for (int round = 0; round < ROUNDS; round++) {
        evict_some(p, PIECE_BYTES), evict_some(stack, STACK_PAGES * PAGE);
        EQ(pwrite(file, p, PIECE_BYTES, 0), PIECE_BYTES);
        evict_some(p, PIECE_BYTES);
        EQ(pread(file, p, PIECE_BYTES, 0), PIECE_BYTES);
        if (round % 64 == 0) check(p, PIECE_BYTES, 3);
    }
    stop = 1;
    OK(pthread_join(t, NULL));
    CHECK(got[SIGBUS] && got[SIGSEGV] && got[SIGUSR1]);
    puts("ok");
    return 0;
}
