/* What every program of this directory uses: memory in the states that matter to a pager, and checks that say why.
 *
 * A program checks itself: it exits 0 and prints one line, or prints the reason to standard error and exits 1. It must do the
 * same whether it runs plainly or under Outswap, so nothing here knows which of the two it is, but `evict`, which must not pass
 * where nothing is evicted. */
#ifndef COMMON_H
#define COMMON_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define PIECE static inline __attribute__((unused))

/* 0: call through libc, 1: call with syscall(2), which no libc wrapper sees. */
static int raw_mode __attribute__((unused));
#define CALL(name, ...) (raw_mode ? (long)syscall(SYS_##name, __VA_ARGS__) : (long)name(__VA_ARGS__))
/* Whether the C library is older than its version 2.`minor`. */
static inline int libc_before(int minor) { return atoi(strchr(gnu_get_libc_version(), '.') + 1) < minor; }
#define EITHER(libc, raw) (raw_mode ? (long)(raw) : (long)(libc))

/* Not known to the compiler, which would warn of a bad argument. */
static volatile int minus_one __attribute__((unused)) = -1;
static pid_t main_pid __attribute__((unused));
static char tmp_path[PATH_MAX] __attribute__((unused));

/* A child that fails must not run its parent's exit handlers. */
PIECE __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...) {
    char line[512];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    n = n > (int)sizeof line - 2 ? (int)sizeof line - 2 : n;
    line[n] = '\n';
    if (write(2, line, n + 1) < 0) _exit(3);
    if (main_pid && getpid() != main_pid) _exit(1);
    exit(1);
}

#define CHECK(condition)                                                                                             \
    ({                                                                                                               \
        if (!(condition))                                                                                            \
            die("%s:%d: not true: %s (errno %d, raw %d)", __FILE__, __LINE__, #condition, errno, raw_mode);          \
    })
#define EQ(got, want)                                                                                                \
    ({                                                                                                               \
        long got_ = (long)(got), want_ = (long)(want);                                                               \
        if (got_ != want_)                                                                                           \
            die("%s:%d: %s is %ld, not %ld (errno %d, raw %d)", __FILE__, __LINE__, #got, got_, want_, errno,        \
                raw_mode);                                                                                           \
    })
#define OK(call) EQ(call, 0)
/* Also sees that a failing call leaves nothing but -1 and the right errno. */
#define expect_errno(call, want)                                                                                     \
    ({                                                                                                               \
        errno = 0;                                                                                                   \
        long got_ = (long)(call);                                                                                    \
        if (got_ != -1 || errno != (want))                                                                           \
            die("%s:%d: %s gave %ld, errno %d, not errno %d (raw %d)", __FILE__, __LINE__, #call, got_, errno,       \
                (int)(want), raw_mode);                                                                              \
    })

PIECE unsigned char byte_at(unsigned seed, size_t i) {
    return (unsigned char)((i * 167) ^ ((i >> 8) * 59) ^ ((i >> 16) * 31)) + (unsigned char)(seed * 101 + 7);
}
/* Eight bytes, each the sum of two. */
PIECE uint64_t byte_sums(uint64_t a, uint64_t b) {
    const uint64_t high = 0x8080808080808080;
    return ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
}
/* The eight bytes from a multiple of eight on. */
PIECE uint64_t word_at(unsigned seed, size_t i) {
    const uint64_t each = 0x0101010101010101, steps = 0x91ea439cf54ea700;
    uint64_t low = byte_sums((unsigned char)(i * 167) * each, steps);
    return byte_sums(low ^ (unsigned char)(((i >> 8) * 59) ^ ((i >> 16) * 31)) * each, (unsigned char)(seed * 101 + 7) * each);
}
PIECE void fill_from(void *p, size_t n, unsigned seed, size_t from) {
    for (size_t i = 0; i < n;) {
        unsigned char *to = (unsigned char *)p + i;
        uint64_t word = word_at(seed, from + i);
        if ((from + i) % 8 == 0 && n - i >= 8) memcpy(to, &word, 8), i += 8;
        else *to = byte_at(seed, from + i), i++;
    }
}
PIECE void fill(void *p, size_t n, unsigned seed) { fill_from(p, n, seed, 0); }
/* One look at eight bytes wherever they lie, which no compiler leaves out or repeats. */
typedef const volatile uint64_t __attribute__((aligned(1), may_alias)) Look;
PIECE void check_at(const char *file, int line, const void *p, size_t n, unsigned seed, size_t from) {
    for (size_t i = 0, bytes; i < n; i += bytes) {
        uint64_t got, want;
        /* Looked at once: what is wrong for a moment is wrong. */
        if ((from + i) % 8 == 0 && n - i >= 8) bytes = 8, want = word_at(seed, from + i), got = *(Look *)((const char *)p + i);
        else bytes = 1, want = byte_at(seed, from + i), got = ((const volatile unsigned char *)p)[i];
        if (got == want) continue;
        size_t at = __builtin_ctzll(got ^ want) / 8;
        die("%s:%d: byte %zu of %zu is %u, not %u (raw %d)", file, line, i + at, n, (unsigned char)(got >> 8 * at), byte_at(seed, from + i + at), raw_mode);
    }
}
PIECE void zero_at(const char *file, int line, const void *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((const volatile unsigned char *)p)[i])
            die("%s:%d: byte %zu of %zu is %u, not 0", file, line, i, n, ((const unsigned char *)p)[i]);
}
#define check(p, n, seed) check_at(__FILE__, __LINE__, p, n, seed, 0)
#define check_from(p, n, seed, from) check_at(__FILE__, __LINE__, p, n, seed, from)
#define check_zero(p, n) zero_at(__FILE__, __LINE__, p, n)

/* Where a program is built with its memory in its .bss: so much of it, handed out from its start on. */
#ifdef IN_BSS
static char bss_room[1536UL << 20] __attribute__((aligned(4096)));
#else
static char bss_room[PAGE] __attribute__((aligned(4096)));
#endif
/* Pages of that; NULL where there are no more, or none at all. */
static __attribute__((noinline, unused)) char *from_bss(size_t pages) {
    static size_t used;
    size_t from = __atomic_fetch_add(&used, pages * PAGE, __ATOMIC_RELAXED);
    return sizeof bss_room > PAGE && from + pages * PAGE <= sizeof bss_room ? bss_room + from : NULL;
}
/* Private anonymous memory that nothing has touched. */
static __attribute__((noinline, unused)) char *fresh(size_t pages) {
    char *room = from_bss(pages);
    if (room) return room;
    char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("cannot map %zu pages: errno %d", pages, errno);
    return p;
}
/* So much behind guarded memory is not mapped: more than any later mapping fills by chance. */
#define HOLE (64UL << 20)
PIECE char *guarded(size_t pages) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *room = from_bss(pages + HOLE / PAGE);
    char *p = room ? room : mmap(NULL, pages * PAGE + HOLE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) die("cannot map a hole: errno %d", errno);
    OK(munmap(p + pages * PAGE, HOLE));
    return p;
}
PIECE char *heap(size_t n) {
    char *p = malloc(n);
    if (!p) die("cannot allocate %zu bytes", n);
    return p;
}
PIECE size_t in_memory(uintptr_t start, uintptr_t end) {
    unsigned char flags[64];
    size_t count = 0;
    for (uintptr_t at = start; at < end; at += sizeof flags * PAGE) {
        size_t n = (end - at) / PAGE < sizeof flags ? (end - at) / PAGE : sizeof flags;
        if (syscall(SYS_mincore, at, n * PAGE, flags)) return 0;
        for (size_t i = 0; i < n; i++) count += flags[i] & 1;
    }
    return count;
}
/* Asks for memory to be paged out; elsewhere than under Outswap this is a hint that changes nothing. Some of it may stay: what is
 * locked, or in use. */
PIECE void evict_some(const void *p, size_t n) {
    uintptr_t start = (uintptr_t)p & ~(PAGE - 1), end = ((uintptr_t)p + n + PAGE - 1) & ~(PAGE - 1);
    int saved = errno;
    madvise((void *)start, end - start, MADV_PAGEOUT);
    errno = saved;
}
/* Turns so many pages over until it is stopped, and has some others evicted now and then. */
PIECE void turn_over(volatile int *stop, size_t turned, char *evicted, size_t pages) {
    char *p = fresh(turned);
    for (unsigned n = 0; !*stop; n++) {
        *(volatile unsigned *)(p + (n % turned) * PAGE) = n;
        if (n % 512 == 0) evict_some(evicted, pages * PAGE);
    }
    OK(munmap(p, turned * PAGE));
}
/* Evicts, and sees under Outswap that what is managed goes. Another thread may have brought some of it in again by then. */
PIECE void evict(const void *p, size_t n) {
    static const uintptr_t first = 0x200000000000, last = 0x2c0000000000;
    uintptr_t start = (uintptr_t)p & ~(PAGE - 1), end = ((uintptr_t)p + n + PAGE - 1) & ~(PAGE - 1);
    int saved = errno;
    size_t before = in_memory(start, end), after = before;
    uintptr_t bss = (uintptr_t)bss_room;
    int is_bss = sizeof bss_room > PAGE && start > bss && end < bss + sizeof bss_room;
    int look = getenv("OUTSWAP_E2E_MANAGED") && (is_bss || (start >= first && end <= last));
    for (int tries = 0; tries < 100; tries++) {
        evict_some(p, n);
        if (!look || before == 0 || (after = in_memory(start, end)) < before) break;
        usleep(1000);
    }
    if (look && before > 0 && after >= before) die("%zu pages at %p: none of %zu was evicted", (end - start) / PAGE, p, before);
    errno = saved;
}
PIECE void handle_signal(int signal, void (*handler)(int), int flags) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
    OK(sigaction(signal, &a, NULL));
}
/* Has an alarm come again and again; 0: no more. */
PIECE void ring(long us) {
    struct itimerval t = {{0, us}, {0, us}};
    OK(setitimer(ITIMER_REAL, &t, NULL));
}
/* Makes other memory hot, so that a pager has to choose. */
PIECE void pressure(size_t mib) {
    size_t pages = mib * 256;
    char *p = fresh(pages);
    for (size_t i = 0; i < pages; i++) *(volatile size_t *)(p + i * PAGE) = i;
    for (size_t i = 0; i < pages; i++) EQ(*(volatile size_t *)(p + i * PAGE), i);
    OK(munmap(p, pages * PAGE));
}

#define MIB (1UL << 20)
#define CHILD(...)                                                                                                   \
    ({                                                                                                               \
        pid_t child_ = fork();                                                                                       \
        if (child_ == 0) {                                                                                           \
            __VA_ARGS__;                                                                                             \
            _exit(0);                                                                                                \
        }                                                                                                            \
        CHECK(child_ > 0);                                                                                           \
        child_;                                                                                                      \
    })
/* Content that nothing compresses; n is a multiple of 8. */
PIECE uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}
PIECE void noise(void *p, size_t n, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15UL + 1;
    for (size_t i = 0; i < n; i += 8) *(uint64_t *)((char *)p + i) = next_random(&x);
}
PIECE void noise_at(const char *file, int line, const void *p, size_t n, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15UL + 1;
    for (size_t i = 0; i < n; i += 8)
        if (*(const uint64_t *)((const char *)p + i) != next_random(&x))
            die("%s:%d: another word at %zu of %zu, noise %lu", file, line, i, n, (unsigned long)seed);
}
#define check_noise(p, n, seed) noise_at(__FILE__, __LINE__, p, n, seed)
/* A thread that has nothing else to do. */
PIECE void sleep_ms(unsigned ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) && errno == EINTR) {
    }
}

/* Room for n bytes that no one has touched, across a page boundary where the size allows it. */
PIECE void *place(size_t n, size_t align) {
    static char *next;
    static size_t left = 1 << 15;
    size_t pages = (n + PAGE - 1) / PAGE + 1;
    /* One mapping for all, so that a hole stays a hole while a test goes on. */
    if (!next && !(next = from_bss(left)))
        next = mmap(NULL, left * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (next == MAP_FAILED || left < pages) die("no room for %zu bytes", n);
    char *p = next;
    next += pages * PAGE;
    left -= pages;
    size_t before = (n / 2 < PAGE / 2 ? n / 2 : PAGE / 2) & ~(align - 1);
    return p + PAGE - before;
}
PIECE size_t align_of(size_t n) { return n >= 32 ? 16 : n >= 16 ? 8 : n >= 4 ? 4 : 1; }
/* A copy of n bytes in memory that was evicted since. */
PIECE void *arg(const void *from, size_t n) {
    void *p = place(n, align_of(n));
    memcpy(p, from, n);
    evict(p, n);
    return p;
}
PIECE char *str(const char *s) {
    char *p = place(strlen(s) + 1, 1);
    strcpy(p, s);
    evict(p, strlen(s) + 1);
    return p;
}
#define ARG(type, ...) ((type *)arg(&(type){__VA_ARGS__}, sizeof(type)))
#define OUT(type) ((type *)place(sizeof(type), align_of(sizeof(type))))
/* An output that held something, now evicted. */
#define OLD(type)                                                                                                    \
    ({                                                                                                               \
        type *old_ = OUT(type);                                                                                      \
        memset((void *)old_, 0xa5, sizeof(type));                                                                    \
        evict(old_, sizeof(type));                                                                                   \
        old_;                                                                                                        \
    })

/* Addresses that cannot be read: ends with NULL. */
PIECE void **bad_in(void) {
    static void *list[6];
    unsigned char in_use;
    /* Any later mapping may have landed in the hole. */
    if (list[0] && (mincore(list[1], PAGE, &in_use) == 0 || errno != ENOMEM)) list[1] = guarded(1) + HOLE / 2;
    if (!list[0]) {
        place(1, 1);
        list[1] = guarded(1) + HOLE / 2;
        char *none = fresh(2);
        OK(mprotect(none, 2 * PAGE, PROT_NONE));
        list[2] = none;
        char *kept = fresh(2);
        fill(kept, 2 * PAGE, 1);
        evict(kept, 2 * PAGE);
        OK(mprotect(kept, 2 * PAGE, PROT_NONE));
        list[3] = kept;
        list[4] = (void *)0xffff888000000000UL;
        list[0] = (void *)16;
    }
    return list;
}
static const char read_only_data[2 * PAGE] __attribute__((aligned(4096), unused)) = {1};
/* Addresses that cannot be written. */
PIECE void **bad_out(void) {
    static void *list[9];
    void **unreadable = bad_in();
    memcpy(list + 1, unreadable + 1, 4 * sizeof *list);
    if (!list[0]) {
        char *fresh_ro = fresh(2), *old_ro = fresh(2);
        OK(mprotect(fresh_ro, 2 * PAGE, PROT_READ));
        fill(old_ro, 2 * PAGE, 2);
        evict(old_ro, 2 * PAGE);
        OK(mprotect(old_ro, 2 * PAGE, PROT_READ));
        list[5] = fresh_ro;
        list[6] = old_ro;
        list[7] = (void *)read_only_data;
        list[0] = unreadable[0];
    }
    return list;
}
/* A readable and writable byte with nothing usable behind it: too short for any structure or unterminated string. */
PIECE void *edge(void) {
    static char *last;
    if (!last) {
        last = fresh(2) + PAGE - 1;
        OK(mprotect(last + 1, PAGE, PROT_NONE));
        *last = 1;
        evict(last, 1);
    }
    return last;
}
#define EACH_FAILS(name, list, call)                                                                                 \
    do {                                                                                                             \
        void *name;                                                                                                  \
        for (void **it_ = (list); (name = *it_); it_++) {                                                            \
            errno = 0;                                                                                               \
            long got_ = (long)(call);                                                                                \
            if (got_ != -1 || errno != EFAULT)                                                                       \
                die("%s:%d: %s with bad address %d gave %ld, errno %d, not EFAULT (raw %d)", __FILE__, __LINE__,     \
                    #call, (int)(it_ - (list)), got_, errno, raw_mode);                                              \
        }                                                                                                            \
    } while (0)
#define EFAULT_IN(name, call) EACH_FAILS(name, bad_in(), call)
#define EFAULT_OUT(name, call) EACH_FAILS(name, bad_out(), call)
/* For structures and strings, which may also end too early. */
#define EFAULT_EDGE(name, call)                                                                                      \
    do {                                                                                                             \
        void *name = edge();                                                                                         \
        expect_errno(call, EFAULT);                                                                                  \
    } while (0)

PIECE int remove_one(const char *path, const struct stat *s, int flag, struct FTW *f) {
    (void)s, (void)flag, (void)f;
    return remove(path);
}
PIECE void remove_tmp(void) {
    if (getpid() == main_pid && chdir("/") == 0) nftw(tmp_path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
/* Moves into an empty directory of its own, which goes away at exit. */
PIECE void tmpdir(void) {
    const char *base = getenv("TMPDIR");
    main_pid = getpid();
    snprintf(tmp_path, sizeof tmp_path, "%s/outswap-call-XXXXXX", base && *base ? base : "/tmp");
    CHECK(mkdtemp(tmp_path));
    atexit(remove_tmp);
    OK(chdir(tmp_path));
}
PIECE void make_file(const char *name, size_t n, unsigned seed) {
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    CHECK(fd >= 0);
    char *bytes = fresh(n / PAGE + 1);
    fill(bytes, n, seed);
    EQ(write(fd, bytes, n), n);
    OK(munmap(bytes, (n / PAGE + 1) * PAGE));
    OK(close(fd));
}
PIECE void write_all(int fd, const void *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t r = write(fd, (const char *)p + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        CHECK(r > 0);
        done += r;
    }
}
PIECE size_t read_all(int fd, void *p, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t r = read(fd, (char *)p + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        CHECK(r >= 0);
        if (r == 0) break;
        done += r;
    }
    return done;
}
PIECE void expect_exit(pid_t pid, int want) {
    int status;
    EQ(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != want) die("child ended with status %#x, not exit %d", status,
        want);
}
PIECE void expect_signal(pid_t pid, int want) {
    int status;
    EQ(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != want) die("child ended with status %#x, not signal %d", status,
        want);
}
PIECE int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
/* Runs the test through libc and then through syscall(2). */
#define BOTH_WAYS(test)                                                                                              \
    int main(void) {                                                                                                 \
        tmpdir();                                                                                                    \
        for (raw_mode = 0; raw_mode < 2; raw_mode++) test();                                                         \
        puts("ok");                                                                                                  \
        return 0;                                                                                                    \
    }
#endif
