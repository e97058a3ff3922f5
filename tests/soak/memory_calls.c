// Random calls on memory, each told with its result, so that two runs with the same seed can be compared line by line: one plainly,
// one under Outswap. Where memory is mapped is told by its place in one range, and never by its address.
//
//   memory_calls SEED STEPS
//
// Left out is what the kernel does not promise (MADV_FREE, what is resident), and what docs/limits.md says is different.
#define _GNU_SOURCE
#include "random.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 6144, FILE_PAGES = 512, MOST_THREADS = 8 };
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static __thread char *base;
static __thread int file, pipes[2];
static __thread jmp_buf back;
static __thread volatile sig_atomic_t probing;
// Ranges with locks and for forks, since the last time that all were taken back, of all threads at most MOST_MARKED.
static __thread int locks, marks;
enum { MOST_MARKED = 12 };
static long steps;
static int threads = 1;

static void fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (!probing) _exit(91);
    long at = ((char *)info->si_addr - base) / PAGE;
    probing = 0;
    _longjmp(back, (int)(1 + (signal == SIGBUS) * 4 + (info->si_code & 3)) | (at < 0 || at >= PAGES ? 64 : 0));
}

// A page's content as a number, or why it cannot be read.
static uint64_t page_hash(size_t page) {
    int why = _setjmp(back);
    if (why) return (uint64_t)why;
    probing = 1;
    uint64_t hash = 1469598103934665603u;
    const volatile uint64_t *words = (const volatile uint64_t *)(base + page * PAGE);
    for (int i = 0; i < PAGE / 8; i += 3) hash = (hash ^ words[i]) * 1099511628211u;
    probing = 0;
    return hash;
}

static uint64_t range_hash(size_t first, size_t count) {
    uint64_t hash = 7;
    for (size_t i = first; i < first + count; i++) hash = (hash ^ page_hash(i)) * 1099511628211u;
    return hash;
}

// Writes to a page; why it cannot be written, or 0.
static int page_write(size_t page, uint64_t value, int whole) {
    int why = _setjmp(back);
    if (why) return why;
    probing = 1;
    volatile uint64_t *words = (volatile uint64_t *)(base + page * PAGE);
    if (whole) {
        for (int i = 0; i < PAGE / 8; i++) words[i] = i % 4 ? value : value * (uint64_t)(i + 1);
    } else {
        words[value % (PAGE / 8)] = value;
    }
    probing = 0;
    return 0;
}

struct range {
    size_t first, count;
};

static struct range some(size_t most) {
    struct range r;
    r.count = 1 + (any(3) ? any(16) : any(most));
    r.first = any(PAGES - r.count + 1);
    return r;
}
#define AT(r) (base + (r).first * PAGE)
#define LEN(r) ((r).count * PAGE)

static int result(long value) { return value < 0 ? -errno : 0; }

static const int prots[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
static int some_prot(void) { return prots[any(sizeof prots / sizeof *prots)]; }

static void map(void) {
    struct range r = some(700);
    int prot = some_prot(), shared = !any(5), populate = !any(8), flags = MAP_ANONYMOUS | MAP_FIXED;
    flags |= shared ? MAP_SHARED : MAP_PRIVATE;
    if (populate && r.count < 64) flags |= MAP_POPULATE;
    void *at = mmap(AT(r), LEN(r), prot, flags, -1, 0);
    tell("mmap %zu %zu %d %x: %d\n", r.first, r.count, prot, (unsigned)flags, at == AT(r) ? 0 : -errno);
}

static void map_file(void) {
    struct range r = some(60);
    int prot = some_prot(), shared = (int)any(2);
    off_t offset = (off_t)any(FILE_PAGES - r.count) * PAGE;
    void *at = mmap(AT(r), LEN(r), prot, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, file, offset);
    tell("mmap file %zu %zu %d %d %ld: %d\n", r.first, r.count, prot, shared, (long)offset, at == AT(r) ? 0 : -errno);
}

static void not_replaced(void) {
    struct range r = some(100);
    void *at = mmap(AT(r), LEN(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    tell("mmap new %zu %zu: %d\n", r.first, r.count, at == AT(r) ? 0 : -errno);
}

static void advise(void) {
    static const int advices[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_COLD,         MADV_PAGEOUT,        MADV_WILLNEED, MADV_NORMAL,
                                  MADV_RANDOM,   MADV_REMOVE,   MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_DONTFORK, MADV_DOFORK,
                                  MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTDUMP, MADV_DODUMP,        MADV_NOHUGEPAGE, 77};
    struct range r = some(500);
    int advice = advices[any(sizeof advices / sizeof *advices)];
    if (advice == MADV_DONTFORK || advice == MADV_WIPEONFORK) {
        r.count = r.count > 8 ? 8 : r.count;
        if (++marks > MOST_MARKED / threads) {
            marks = 0;
            for (size_t i = 0; i < PAGES; i += 8) {
                madvise(base + i * PAGE, 8 * PAGE, MADV_DOFORK);
                madvise(base + i * PAGE, 8 * PAGE, MADV_KEEPONFORK);
                for (size_t j = i; j < i + 8; j++) {
                    madvise(base + j * PAGE, PAGE, MADV_DOFORK);
                    madvise(base + j * PAGE, PAGE, MADV_KEEPONFORK);
                }
            }
        }
    }
    if ((advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE) && r.count > 100) r.count = 100;
    int end = result(madvise(AT(r), LEN(r), advice));
    // Older kernels (6.8) populate what lies beyond a hole, too, and tell of its rights rather than of the hole.
    if (end == -ENOMEM && (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE)) end = -EINVAL;
    tell("madvise %zu %zu %d: %d\n", r.first, r.count, advice, end);
}

static void remap(void) {
    struct range from = some(200), to = some(200);
    int way = (int)any(4), end;
    size_t count = way == 3 || any(2) ? from.count : 1 + any(220);
    if (to.first + count > PAGES) to.first = PAGES - count;
    // One mapping, and the program's own: what spans several moves since Linux 6.17, and what is a file's does not move here.
    void *at = mmap(AT(from), LEN(from), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at != AT(from)) _exit(96);
    uint64_t value = any(UINT64_MAX), step = 1 + any(3);
    for (size_t i = 0; i < from.count; i += step) page_write(from.first + i, value + i, 1);
    if (any(2)) madvise(AT(from), LEN(from), MADV_PAGEOUT);
    if (!any(4)) mprotect(AT(from), LEN(from), some_prot());
    if (!any(8) && from.count < 20) mlock(AT(from), LEN(from)), locks++;
    if (way == 0) {
        // In its place.
        if (from.first + count > PAGES) count = PAGES - from.first;
        at = mremap(AT(from), LEN(from), count * PAGE, 0);
        end = at == AT(from) ? 0 : -errno;
    } else if (way == 3) {
        at = mremap(AT(from), LEN(from), LEN(from), MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, AT(to));
        end = at == AT(to) ? 0 : -errno;
    } else {
        at = mremap(AT(from), LEN(from), count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, AT(to));
        end = at == AT(to) ? 0 : -errno;
    }
    tell("mremap %d %zu %zu %zu %zu: %d\n", way, from.first, from.count, to.first, count, end);
}

static void lock(void) {
    struct range r = some(20);
    int way = (int)any(3), end;
    if (way == 0 && ++locks > MOST_MARKED) {
        locks = 0;
        for (size_t i = 0; i < PAGES; i++) munlock(base + i * PAGE, PAGE);
    }
    end = result(way == 0 ? mlock(AT(r), LEN(r)) : munlock(AT(r), LEN(r)));
    tell("mlock %d %zu %zu: %d\n", way, r.first, r.count, end);
}

static void touch(void) {
    struct range r = some(600);
    uint64_t value = any(UINT64_MAX), whole = any(2), ends = 0;
    for (size_t i = r.first; i < r.first + r.count; i++) ends = ends * 31 + (uint64_t)page_write(i, value + i, (int)whole);
    tell("write %zu %zu: %llx\n", r.first, r.count, (unsigned long long)ends);
}

static void look(void) {
    struct range r = some(900);
    tell("read %zu %zu: %llx\n", r.first, r.count, (unsigned long long)range_hash(r.first, r.count));
}

// A place in a range that need not be at a page's border.
static struct iovec piece(size_t most) {
    struct range r = some(most);
    size_t shift = any(2) ? any(PAGE) : 0, less = any(2) ? any(PAGE) : 0, len = LEN(r) - shift;
    return (struct iovec){AT(r) + shift, len > less ? len - less : len};
}

static void transfer(void) {
    struct iovec v[3] = {piece(90), piece(30), piece(10)};
    int n = any(3) ? 1 : 3, way = (int)any(4);
    off_t offset = (off_t)any(FILE_PAGES / 2 * PAGE);
    ssize_t done;
    if (way == 0) done = n == 1 ? pread(file, v[0].iov_base, v[0].iov_len, offset) : preadv(file, v, n, offset);
    else if (way == 1) done = n == 1 ? pwrite(file, v[0].iov_base, v[0].iov_len, offset) : pwritev(file, v, n, offset);
    else {
        // Through a pipe, at once and whole.
        if (v[0].iov_len > 8 * PAGE) v[0].iov_len = 8 * PAGE;
        done = write(pipes[1], v[0].iov_base, v[0].iov_len);
        for (ssize_t left = done, got; left > 0; left -= got) {
            got = read(pipes[0], v[1].iov_base, v[1].iov_len < (size_t)left ? v[1].iov_len : (size_t)left);
            if (got <= 0) {
                static char rest[16 * PAGE];
                tell("pipe to %zd: %d\n", v[1].iov_base ? (ssize_t)((char *)v[1].iov_base - base) : 0, got < 0 ? -errno : 0);
                got = read(pipes[0], rest, (size_t)left);
            }
        }
    }
    tell("transfer %d %d %ld %zu, %ld: %zd %d\n", way, n, (long)((char *)v[0].iov_base - base), v[0].iov_len, (long)offset, done,
         done < 0 ? errno : 0);
}

static void family(void) {
    flush();
    uint64_t from = any(UINT64_MAX);
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t hash = range_hash(0, PAGES);
        for (int i = 0; i < 300; i++) hash = hash * 31 + (uint64_t)page_write((from + (uint64_t)i * 7919) % PAGES, from + (uint64_t)i, 1);
        hash ^= range_hash(0, PAGES);
        ssize_t n = write(pipes[1], &hash, sizeof hash);
        _exit(n == sizeof hash ? 0 : 92);
    }
    uint64_t hash = 0;
    int status = -1;
    // Shared memory that the child writes is looked at when it has ended.
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        tell("child: %x\n", (unsigned)status);
        return;
    }
    if (read(pipes[0], &hash, sizeof hash) != sizeof hash) _exit(93);
    tell("fork: %llx\n", (unsigned long long)hash);
}

// What a thread does: `number` is its seed.
static void calls(uint64_t number) {
    seed(number);
    base = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    file = memfd_create("file", 0);
    if (base == MAP_FAILED || file < 0 || ftruncate(file, FILE_PAGES * PAGE) || pipe(pipes)) _exit(94);
    char content[PAGE];
    for (int i = 0; i < FILE_PAGES; i++) {
        memset(content, i % 251, sizeof content);
        if (pwrite(file, content, sizeof content, (off_t)i * PAGE) != PAGE) _exit(95);
    }
    for (long step = 0; step < steps; step++) {
        tell("%ld ", step);
        switch (any(40)) {
        case 0: case 1: case 2: case 3: map(); break;
        case 4: map_file(); break;
        case 5: not_replaced(); break;
        case 6: case 7: {
            struct range r = some(150);
            int end = result(munmap(AT(r), LEN(r)));
            tell("munmap %zu %zu: %d\n", r.first, r.count, end);
            break;
        }
        case 8: case 9: case 10: case 11: {
            struct range r = some(200);
            int prot = some_prot(), end = result(mprotect(AT(r), LEN(r), prot));
            tell("mprotect %zu %zu %d: %d\n", r.first, r.count, prot, end);
            break;
        }
        case 12: case 13: case 14: case 15: case 16: advise(); break;
        case 17: case 18: case 19: remap(); break;
        case 20: case 21: lock(); break;
        case 22: {
            struct range r = some(100);
            int end = result(msync(AT(r), LEN(r), any(2) ? MS_SYNC : MS_ASYNC));
            tell("msync %zu %zu: %d\n", r.first, r.count, end);
            break;
        }
        case 23: case 24: case 25: case 26: transfer(); break;
        case 27: if (!any(4)) family(); else look(); break;
        case 28: case 29: case 30: case 31: case 32: look(); break;
        default: touch(); break;
        }
    }
    tell("all: %llx\n", (unsigned long long)range_hash(0, PAGES));
    flush();
}

struct thread {
    pthread_t id;
    uint64_t number;
    int to;
};

static void *one_thread(void *arg) {
    struct thread *thread = arg;
    out_to = thread->to;
    calls(thread->number);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t number = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    steps = argc > 2 ? atol(argv[2]) : 1000;
    threads = argc > 3 ? atoi(argv[3]) : 1;
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    if (threads == 1) {
        calls(number);
        return 0;
    }
    if (threads < 1 || threads > MOST_THREADS) return 97;
    static struct thread each[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        each[i].number = number * MOST_THREADS + (uint64_t)i;
        each[i].to = memfd_create("told", 0);
        if (each[i].to < 0 || pthread_create(&each[i].id, NULL, one_thread, &each[i])) return 98;
    }
    for (int i = 0; i < threads; i++) {
        static char told[1 << 16];
        if (pthread_join(each[i].id, NULL)) return 99;
        ssize_t n;
        for (off_t at = 0; (n = pread(each[i].to, told, sizeof told, at)) > 0; at += n)
            if (write(1, told, (size_t)n) != n) return 89;
    }
    return 0;
}
