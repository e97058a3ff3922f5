/* A touch that comes while another thread unmaps the memory, takes its access, or maps it anew: SIGSEGV says which of these it was, or the touch
 * finds what it should. */
#include "common.h"
#include <setjmp.h>

enum { PAGES = 32, TURNS = 1500 };
enum { UNMAPS, PROTECTS, MAPS_ANEW, KINDS };

static sigjmp_buf back;
static siginfo_t told;
static pthread_barrier_t begins, ends;
static char *region;
static int kind;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    told = *info;
    siglongjmp(back, 1);
}

static void *takes_away(void *arg) {
    unsigned n = 1;
    for (int i = 0; i < KINDS * TURNS; i++) {
        pthread_barrier_wait(&begins);
        for (unsigned spins = (n = n * 1103515245 + 12345) >> 16 & 2047; spins; spins--) __asm__ volatile("pause");
        if (kind == PROTECTS) OK(mprotect(region, PAGES * PAGE, PROT_NONE));
        else OK(munmap(region, PAGES * PAGE));
        if (kind == MAPS_ANEW) {
            char *at = mmap(region, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(at != MAP_FAILED);
            if (at != region) OK(munmap(at, PAGES * PAGE));
        }
        pthread_barrier_wait(&ends);
    }
    return arg;
}

/* Touches all pages; says how many times it was told of one that it could not. */
static int touches(void) {
    volatile int told_of = 0, at = 0;
    if (sigsetjmp(back, 1)) {
        EQ(told.si_signo, SIGSEGV);
        EQ(told.si_code, kind == PROTECTS ? SEGV_ACCERR : SEGV_MAPERR);
        CHECK((char *)told.si_addr == region + at * PAGE);
        told_of++;
    } else
        for (; at < PAGES; at++) {
            unsigned char byte = *(volatile unsigned char *)(region + at * PAGE);
            if (byte != byte_at(1, at * PAGE) && (kind != MAPS_ANEW || byte != 0)) die("page %d has %u", at, byte);
        }
    return told_of;
}

/* Code in memory that is not to be executed, which is evicted. */
static void executes(void) {
    char *p = fresh(1);
    memset(p, 0xc3, PAGE), evict(p, PAGE);
    if (!sigsetjmp(back, 1)) {
        ((void (*)(void))p)();
        die("data was executed");
    }
    EQ(told.si_signo, SIGSEGV), EQ(told.si_code, SEGV_ACCERR);
    CHECK((char *)told.si_addr == p);
    EQ((unsigned char)p[PAGE - 1], 0xc3);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSEGV, &action, NULL)), OK(sigaction(SIGBUS, &action, NULL));
    executes();
    pthread_t thread;
    OK(pthread_barrier_init(&begins, NULL, 2)), OK(pthread_barrier_init(&ends, NULL, 2));
    OK(pthread_create(&thread, NULL, takes_away, NULL));
    for (kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < TURNS; i++) {
            region = fresh(PAGES);
            fill(region, PAGES * PAGE, 1), evict_some(region, PAGES * PAGE);
            pthread_barrier_wait(&begins);
            touches();
            pthread_barrier_wait(&ends);
            /* What was mapped anew may have been, or not. */
            if (kind != UNMAPS) munmap(region, PAGES * PAGE);
        }
    OK(pthread_join(thread, NULL));
    puts("ok");
    return 0;
}
