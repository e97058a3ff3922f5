/* Code of 32 bits in a program of 64, as Wine runs: signals come while it runs, by a timer and by what it does itself; handlers are code of 64
 * bits, find its registers, with its segments, and what they return to goes on. */
#include "common.h"
#include <sys/time.h>
#include <ucontext.h>

enum { CODE32 = 0x23, CODE64 = 0x33, DATA = 0x2b, HEAP = 40 << 20, TURNS = 20 };
/* All in one piece below 4 GiB. */
enum { FLAG_AT = 2048, STACK_AT = 64 << 10, LOW = 64 << 10 };
static unsigned char *low;
static char *area;
static volatile int timers, faults, wrong;
static uintptr_t saved_rsp;

static int in_32(const ucontext_t *uc) { return (uc->uc_mcontext.gregs[REG_CSGSFS] & 0xffff) == CODE32; }
static void look(void) {
    unsigned short code;
    __asm__("mov %%cs, %0" : "=r"(code));
    if (code != CODE64) wrong++;
    /* What was evicted comes in here, too. */
    static size_t at;
    at = (at + 1237 * PAGE) % HEAP;
    ((volatile char *)area)[at];
}
static void on_timer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    look();
    if (in_32(context) && ++timers >= TURNS) *(volatile int *)(low + FLAG_AT) = 1;
}
static void on_fault(int signal, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    (void)signal;
    look();
    if (!in_32(uc) || info->si_addr != (void *)16) _exit(9);
    faults++;
    /* Past the two bytes that touched it, with another value in place. */
    uc->uc_mcontext.gregs[REG_RIP] += 2, uc->uc_mcontext.gregs[REG_RAX] = 4321;
}
/* Calls what lies at the beginning, on a stack that it can have, and gives its eax. */
static unsigned run_32(const unsigned char *code, size_t bytes) {
    /* A call to another segment by a pointer that lies there, and a return. */
    unsigned char to[] = {0xff, 0x1c, 0x25, 0, 0, 0, 0, 0xc3};
    unsigned where[] = {(unsigned)(uintptr_t)low, CODE32}, pointer = (unsigned)(uintptr_t)low + 1024, eax;
    memcpy(low, code, bytes), memcpy(low + 1024, where, 6);
    memcpy(to + 3, &pointer, 4), memcpy(low + 1280, to, sizeof to);
    __asm__ volatile("mov %%rsp, %[saved]\n mov %[data], %%edx\n mov %%edx, %%ds\n mov %[stack], %%rsp\n call *%[to]\n"
                     "mov %[saved], %%rsp\n xor %%edx, %%edx\n mov %%edx, %%ds"
                     : "=a"(eax), [saved] "+m"(saved_rsp)
                     : [data] "i"(DATA), [stack] "r"(low + STACK_AT - 64), [to] "r"(low + 1280)
                     : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
    return eax;
}
static void all(int flags) {
    /* mov eax, [flag]; test eax, eax; jz back; retf */
    unsigned char waits[] = {0xa1, 0, 0, 0, 0, 0x85, 0xc0, 0x74, 0xf7, 0xcb};
    /* xor eax, eax; mov al, 16; mov eax, [eax]; retf */
    static const unsigned char touches[] = {0x31, 0xc0, 0xb0, 0x10, 0x8b, 0x00, 0xcb};
    unsigned flag = (unsigned)(uintptr_t)low + FLAG_AT;
    memcpy(waits + 1, &flag, 4);
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | flags};
    OK(sigaction(SIGALRM, &action, NULL));
    action.sa_sigaction = on_fault;
    OK(sigaction(SIGSEGV, &action, NULL));
    timers = faults = 0, *(int *)(low + FLAG_AT) = 0;
    for (int i = 0; i < TURNS; i++) EQ(run_32(touches, sizeof touches), 4321);
    EQ(faults, TURNS);
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &often, NULL));
    EQ(run_32(waits, sizeof waits), 1);
    OK(setitimer(ITIMER_REAL, &never, NULL));
    CHECK(timers >= TURNS);
    EQ(wrong, 0);
}
int main(void) {
    low = mmap(NULL, LOW, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    area = fresh(HEAP / PAGE);
    noise(area, HEAP, 1);
    static char other[64 << 10];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    OK(sigaltstack(&stack, NULL));
    all(SA_ONSTACK);
    /* On the stack that the code of 32 bits has. */
    all(0);
    check_noise(area, HEAP, 1);
    puts("ok");
    return 0;
}
