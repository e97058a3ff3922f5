/* Arguments that are ints to the kernel, with anything at all above them in their registers. */
#include "common.h"
#include <netinet/in.h>

#define ABOVE 0xdead123400000000UL

static long call(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    register uint64_t r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
/* As an instruction in memory that is mapped later is, and as the C library is. */
#define CALL6(number, ...) (raw_mode ? call(number, __VA_ARGS__) : from_library(number, __VA_ARGS__))
static long from_library(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    long result = syscall(number, a, b, c, d, e, f);
    return result < 0 ? -errno : result;
}
#define AT(p) ((uintptr_t)(p))

static void sockets(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, bound;
    socklen_t len = sizeof bound;
    int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0), size = 65536;
    CHECK(one >= 0 && two >= 0);
    EQ(CALL6(SYS_bind, one, AT(arg(&any, sizeof any)), ABOVE | sizeof any, 0, 0, 0), 0);
    OK(getsockname(one, (void *)&bound, &len));
    EQ(CALL6(SYS_setsockopt, one, SOL_SOCKET, SO_RCVBUF, AT(arg(&size, sizeof size)), ABOVE | sizeof size, 0), 0);
    EQ(CALL6(SYS_sendto, two, AT(str("first")), 6, 0, AT(arg(&bound, sizeof bound)), ABOVE | sizeof bound), 6);
    EQ(CALL6(SYS_connect, two, AT(arg(&bound, sizeof bound)), ABOVE | sizeof bound, 0, 0, 0), 0);
    EQ(send(two, "second", 7, 0), 7);
    char *got = place(64, 1);
    EQ(recv(one, got, 64, 0), 6), CHECK(!strcmp(got, "first"));
    EQ(recv(one, got, 64, 0), 7), CHECK(!strcmp(got, "second"));
    OK(close(one)), OK(close(two));
}

static void lengths(void) {
    unlink("link"), OK(symlink("somewhere", "link"));
    char *old = (char *)OLD(uint64_t), *older = (char *)OLD(uint64_t);
    EQ(CALL6(SYS_readlink, AT(str("link")), AT(old), ABOVE | 8, 0, 0, 0), 8), CHECK(!memcmp(old, "somewher", 8));
    EQ(CALL6(SYS_readlinkat, AT_FDCWD, AT(str("link")), AT(older), ABOVE | 8, 0, 0), 8), CHECK(!memcmp(older, "somewher", 8));
    cpu_set_t *set = OLD(cpu_set_t);
    CHECK(CALL6(SYS_sched_getaffinity, 0, ABOVE | sizeof *set, AT(set), 0, 0, 0) > 0), CHECK(CPU_COUNT(set) > 0);
    set = arg(set, sizeof *set);
    EQ(CALL6(SYS_sched_setaffinity, 0, ABOVE | sizeof *set, AT(set), 0, 0, 0), 0);
    uint64_t *attributes = (uint64_t *)OLD(cpu_set_t);
    EQ(CALL6(SYS_sched_getattr, 0, AT(attributes), ABOVE | 48, 0, 0, 0), 0), EQ((uint32_t)(attributes[0] >> 32), SCHED_OTHER);
    /* Nothing may come of these. */
    EQ(CALL6(SYS_sethostname, AT(str("name")), ABOVE | 1000, 0, 0, 0, 0), geteuid() ? -EPERM : -EINVAL);
}

static void memory(void) {
    char *p = fresh(64);
    fill(p, 64 * PAGE, 1), evict(p, 64 * PAGE);
    EQ(CALL6(SYS_msync, AT(p), 64 * PAGE, ABOVE | MS_ASYNC, 0, 0, 0), 0);
    EQ(CALL6(SYS_mlock2, AT(p), PAGE, ABOVE | MLOCK_ONFAULT, 0, 0, 0), 0);
    OK(munlock(p, PAGE));
    EQ(CALL6(SYS_mlockall, ABOVE | 64, 0, 0, 0, 0, 0), -EINVAL);
    check(p, 32 * PAGE, 1);
    EQ(CALL6(SYS_madvise, AT(p), 32 * PAGE, ABOVE | MADV_DONTNEED, 0, 0, 0), 0);
    check_zero(p, 32 * PAGE);
    check_from(p + 32 * PAGE, 32 * PAGE, 1, 32 * PAGE);
    OK(munmap(p, 64 * PAGE));
}

static void masks(void) {
    uint64_t *before = OLD(uint64_t), usr1 = 1UL << (SIGUSR1 - 1), segv = 1UL << (SIGSEGV - 1), both = usr1 | segv;
    EQ(CALL6(SYS_rt_sigprocmask, ABOVE | SIG_BLOCK, AT(arg(&both, 8)), AT(before), 8, 0, 0), 0), EQ(*before & both, 0);
    EQ(CALL6(SYS_rt_sigprocmask, ABOVE | SIG_UNBLOCK, AT(arg(&segv, 8)), AT(before), 8, 0, 0), 0), EQ(*before & both, both);
    EQ(CALL6(SYS_rt_sigprocmask, ABOVE | SIG_SETMASK, AT(arg(&segv, 8)), AT(before), 8, 0, 0), 0), EQ(*before & both, usr1);
    EQ(CALL6(SYS_rt_sigprocmask, ABOVE | SIG_UNBLOCK, AT(arg(&both, 8)), AT(before), 8, 0, 0), 0), EQ(*before & both, segv);
    EQ(CALL6(SYS_rt_sigprocmask, ABOVE | 3, AT(arg(&both, 8)), 0, 8, 0, 0), -EINVAL);
}

static void all(void) { sockets(), lengths(), memory(), masks(); }

BOTH_WAYS(all)
