/* Touching memory that may fault, and learning how. */
#ifndef FAULTS_H
#define FAULTS_H
#include "common.h"
#include <setjmp.h>

static sigjmp_buf fault_jump;
static volatile sig_atomic_t fault_signal, fault_code;
static void *volatile fault_address;
static void on_fault(int s, siginfo_t *i, void *c) {
    (void)c;
    fault_signal = s, fault_code = i->si_code, fault_address = i->si_addr;
    siglongjmp(fault_jump, 1);
}
PIECE void catch_faults(void) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSEGV, &a, NULL)), OK(sigaction(SIGBUS, &a, NULL));
}
/* 0, or the signal that reading (write = 0) or writing one byte brings. */
PIECE int touch(volatile char *p, int write) {
    fault_signal = 0;
    if (sigsetjmp(fault_jump, 1)) {
        CHECK(fault_address == p);
        return fault_signal;
    }
    if (write)
        *p = *p;
    else
        (void)*p;
    return 0;
}
#define FAULTS_WITH(p, write, code)                                                                                  \
    do {                                                                                                             \
        EQ(touch(p, write), SIGSEGV);                                                                                \
        EQ(fault_code, code);                                                                                        \
    } while (0)
#endif
