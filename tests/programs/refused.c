/* What is refused under Outswap, with its error number; after that, the program goes on. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void tell(const char *what, long result) { printf("%s %ld %d\n", what, result, result < 0 ? errno : 0); }

/* A kernel that tells the program of its calls tells it of all that do not come from a range, or that come from one. */
static long dispatch(long mode, size_t from, size_t bytes) {
    static char byte;
    return prctl(59, mode, from, bytes, &byte);
}
static long dispatch_here(void) {
    long value;
    register long selector __asm__("r8") = 0, bytes __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(value) : "a"(SYS_prctl), "D"(59), "S"(1), "d"(0), "r"(bytes), "r"(selector) : "rcx", "r11", "memory");
    if (value >= 0) return value;
    errno = -value;
    return -1;
}

int main(void) {
    size_t bytes = 48 << 20;
    char *p = malloc(bytes);
    if (!p) return 2;
    memset(p, 7, bytes);
    for (int i = 0; i < 2; i++) {
        tell("strict", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
        tell("strict", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
        long pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, NULL, NULL, 0);
        if (pid == 0) _exit(0);
        tell("files", pid);
        tell("dispatch", dispatch(1, 0, 0));
        tell("dispatch", dispatch(1, 0x10000, 0x10000));
        tell("dispatch", dispatch_here());
    }
    for (size_t i = 0; i < bytes; i += 4096)
        if (p[i] != 7) return 3;
    puts("ok");
    return 0;
}
