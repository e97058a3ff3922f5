/* What the kernel tells of dispositions of signals is what it keeps, whoever stands in for the handler; and corners of mremap and mincore
 * where a range is not one mapping. */
#include "common.h"

static void handler(int signal) { (void)signal; }
static void back(int signal, struct sigaction *found) { OK(sigaction(signal, NULL, found)); }

static void dispositions(void) {
    struct sigaction all = {.sa_flags = SA_RESTART}, found;
    void (*handlers[])(int) = {SIG_IGN, SIG_DFL, handler};
    sigfillset(&all.sa_mask);
    for (int i = 0; i < 3; i++) {
        all.sa_handler = handlers[i];
        OK(sigaction(SIGUSR1, &all, NULL)), back(SIGUSR1, &found);
        CHECK(found.sa_handler == handlers[i]), EQ(found.sa_flags & (SA_RESTART | SA_SIGINFO | SA_ONSTACK), SA_RESTART);
        CHECK(!sigismember(&found.sa_mask, SIGKILL) && !sigismember(&found.sa_mask, SIGSTOP));
        CHECK(sigismember(&found.sa_mask, SIGBUS) && sigismember(&found.sa_mask, SIGSEGV) && sigismember(&found.sa_mask, SIGSYS));
        CHECK(sigismember(&found.sa_mask, SIGUSR2));
    }
    /* As the last one was told. */
    struct sigaction none = {.sa_handler = SIG_DFL};
    OK(sigaction(SIGUSR1, &none, &found)), CHECK(found.sa_handler == handler && sigismember(&found.sa_mask, SIGBUS));
    OK(sigaction(SIGUSR1, &all, &found)), CHECK(found.sa_handler == SIG_DFL && !sigismember(&found.sa_mask, SIGBUS));
    /* Flags that nobody knows, as the kernel has them. */
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } odd = {.handler = SIG_IGN, .flags = 0x40000500}, kept, kept_too;
    for (int i = 0; i < 2; i++) {
        int signal = i ? SIGSEGV : SIGUSR2;
        OK(syscall(SYS_rt_sigaction, signal, &odd, NULL, 8)), OK(syscall(SYS_rt_sigaction, signal, NULL, i ? &kept_too : &kept, 8));
    }
    EQ(kept.flags & ~0x500UL, 0x40000000), EQ(kept_too.flags, kept.flags);
    odd.handler = SIG_DFL, odd.flags = 0;
    OK(syscall(SYS_rt_sigaction, SIGSEGV, &odd, NULL, 8));
}

static volatile int rings, came;
static void rang(int signal) { (void)signal, rings++; }
static void once(int signal) {
    struct sigaction again;
    back(signal, &again);
    CHECK(again.sa_handler == SIG_DFL), CHECK(again.sa_flags & SA_RESETHAND), EQ(again.sa_flags & (SA_SIGINFO | SA_ONSTACK), 0);
    CHECK(!sigismember(&again.sa_mask, SIGALRM));
    again.sa_handler = once;
    /* With what was read, it is the same handler again, in which other signals come. */
    if (came++ == 0) OK(sigaction(signal, &again, NULL));
    else {
        ring(20000);
        for (int i = 0; i < 300 && !rings; i++) sleep_ms(10);
        CHECK(rings);
    }
}
static void resets(void) {
    handle_signal(SIGALRM, rang, 0), handle_signal(SIGUSR2, once, SA_RESETHAND);
    OK(raise(SIGUSR2)), OK(raise(SIGUSR2)), EQ(came, 2);
}

/* What is cut off may be another mapping; what moves may not. */
static void cuts(void) {
    for (int foreign = 0; foreign < 2; foreign++) {
        char *p = fresh(8), *to = fresh(8);
        fill(p, 8 * PAGE, 3);
        if (foreign) {
            int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
            write_all(fd, p, 8 * PAGE);
            CHECK(mmap(p, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == p);
            /* Somewhere else. */
            to = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
            CHECK(to != MAP_FAILED);
            close(fd);
        }
        OK(mprotect(p + 4 * PAGE, 4 * PAGE, PROT_READ));
        if (!foreign) evict_some(p, 4 * PAGE);
        CHECK(mremap(p, 8 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        check_at(__FILE__, __LINE__, to, 4 * PAGE, 3, 0);
        unsigned char in[8];
        EQ(mincore(p, PAGE, in), -1), EQ(errno, ENOMEM);
        EQ(mincore(p + 7 * PAGE, PAGE, in), -1), EQ(errno, ENOMEM);
    }
}
static void holes(void) {
    char *p = fresh(4);
    unsigned char in[4] = {9, 9, 9, 9};
    p[0] = p[PAGE] = p[3 * PAGE] = 1;
    OK(munmap(p + 2 * PAGE, PAGE));
    EQ(mincore(p, 4 * PAGE, in), -1), EQ(errno, ENOMEM);
    EQ(in[0], 1), EQ(in[1], 1), EQ(in[2], 9), EQ(in[3], 9);
}

int main(void) {
    tmpdir();
    dispositions();
    resets();
    cuts();
    holes();
    puts("ok");
    return 0;
}
