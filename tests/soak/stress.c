/* stress SECONDS SEED THREADS [MIB [OPERATION...]]: everything that programs do with memory, at once, with every byte looked at.
 *
 * The content of each page follows from who owns it, which page it is and how often it was written, so every read is a check.
 * Two processes with THREADS threads each work on MIB together (64). They, and what they fork, do what `OPERATIONS` lists, in
 * an order that follows from SEED. A third process watches: it ends all when one finds a wrong byte (exit 1, with the place),
 * or comes to nothing new for a long time (exit 2, with what each was doing). Else it prints how often each was done. Where
 * operations are named, only those are done, and writing and reading. With NO_TIMERS in the environment, no signals come, and
 * what a program with one thread does is the same each time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif

enum {
    PAGE = 4096,
    WORDS = PAGE / 8,
    PROCESSES = 2,
    MOST_THREADS = 64,
    DEEPEST = 3,
    GROWTH = 64,          /* pages that a region may grow by */
    SCRATCH = 256,        /* pages that killed processes write, and that nobody checks */
    COMMON = 512,         /* pages that signal handlers read */
    COMMON_OWNER = 0xfff,
    STACK = 256 << 10,
    STEPS_OF_A_CHILD = 60,
    SILENCE_S = 120,      /* without anything new, this is a hang */
};
extern char **environ;

#define OPERATIONS(X)                                                                                                \
    X(write_run, 300, 1) X(read_run, 300, 1) X(dontneed, 30, 1) X(drop_free, 15, 1) X(pageout, 30, 1) X(cold, 15, 1) \
    X(willneed, 10, 1) X(protect_read, 20, 1) X(protect_none, 20, 1) X(faults_handled, 15, 1) X(grow_shrink, 10, 1)  \
    X(move_all, 5, 1) X(move_parts, 10, 1) X(map_again, 10, 1) X(lock, 5, 1) X(file, 20, 1) X(file_vector, 20, 1)    \
    X(socket, 20, 1) X(socket_large, 4, 1) X(fork_work, 6, 1) X(fork_killed, 5, 1) X(fork_dropped, 3, 1)             \
    X(vfork_exec, 5, 1) X(vfork_touch, 5, 1) X(vfork_killed, 4, 0) X(clone_vm, 4, 1) X(clone_vm_killed, 4, 1)        \
    X(spawn, 3, 1) X(exec_self, 2, 1) X(jump, 10, 0) X(thread, 6, 0) X(cancel, 6, 0)

enum {
#define X(name, weight, child) OP_##name,
    OPERATIONS(X)
#undef X
    OPS
};
static const char *const op_names[] = {
#define X(name, weight, child) #name,
    OPERATIONS(X)
#undef X
};
static int op_weights[] = {
#define X(name, weight, child) weight,
    OPERATIONS(X)
#undef X
};
static const char op_in_child[] = {
#define X(name, weight, child) child,
    OPERATIONS(X)
#undef X
};

/* What one thread says to the one that watches. */
struct slot {
    _Atomic unsigned long ticks;
    /* What it, its child and so on are doing. */
    _Atomic(const char *) what[DEEPEST + 2];
    _Atomic int pid[DEEPEST + 2];
};
static struct shared {
    _Atomic int stop, bad;
    _Atomic unsigned long done[OPS];
    struct slot slots[PROCESSES * MOST_THREADS];
} *shared;

struct worker {
    unsigned owner;
    struct slot *slot;
    uint64_t random;
    char *region, *scratch;
    uint32_t *versions, next_version;
    size_t pages;
    int ends[2];
    /* Of processes that share this memory: their stack, their parent. */
    char *stack;
    pid_t process;
    /* What the process's helper thread is asked for: to kill, or to interrupt. */
    pthread_t self;
    _Atomic int victim, poke;
    _Atomic unsigned steps;
    pthread_t thread;
};
static unsigned long seed;
static int depth;
static char self_path[256], *common;
static _Atomic int helper_stop;

static __thread volatile int armed;
static __thread sigjmp_buf jump;
static __thread char *volatile fault_from, *volatile fault_to;
static __thread volatile int fault_jumps, faults;

static void say(const char *format, ...) {
    char line[400];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (write(2, line, n) < 0) _exit(3);
}
static __attribute__((noreturn, format(printf, 1, 2))) void bad(const char *format, ...) {
    char line[300];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    say("BAD (seed %lu, pid %d, depth %d): %s", seed, (int)getpid(), depth, line);
    if (shared) atomic_fetch_add(&shared->bad, 1);
    _exit(1);
}
#define MUST(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) bad("line %d: not true: %s (errno %d)", __LINE__, #condition, errno);                      \
    } while (0)

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15UL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9UL, x = (x ^ x >> 27) * 0x94d049bb133111ebUL;
    return x ^ x >> 31;
}
static uint64_t next(struct worker *w) { return w->random = mix(w->random); }
static size_t below(struct worker *w, size_t n) { return (next(w) >> 16) % n; }

/* The words of a page: random, with a pattern, half of each, or nearly nothing. A page never written is zero. */
static inline uint64_t word(uint64_t base, uint32_t version, int k) {
    if (version == 0) return 0;
    switch (version & 3) {
    case 0: return mix(base + k);
    case 1: return base + (k & 7);
    case 2: return k < WORDS / 2 ? mix(base + k) : 0;
    default: return k == 7 ? base : 0;
    }
}
static uint64_t base_of(unsigned owner, size_t page, uint32_t version) {
    return mix((uint64_t)owner << 52 ^ (uint64_t)page << 32 ^ version);
}
static void put(char *p, unsigned owner, size_t page, uint32_t version) {
    uint64_t base = base_of(owner, page, version);
    for (int k = 0; k < WORDS; k++) ((uint64_t *)p)[k] = word(base, version, k);
}
static void look(const char *p, unsigned owner, size_t page, uint32_t version, const char *where) {
    uint64_t base = base_of(owner, page, version);
    for (int k = 0; k < WORDS; k++) {
        uint64_t got = ((const volatile uint64_t *)p)[k], want = word(base, version, k);
        if (got != want)
            bad("%s: owner %x page %zu version %u word %d at %p is %lx, not %lx", where, owner, page, version, k,
                (const void *)(p + k * 8), (unsigned long)got, (unsigned long)want);
    }
}
static char *map(size_t pages) {
    char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}
static void unmap(char *p, size_t pages) { MUST(munmap(p, pages * PAGE) == 0); }
static char *at(struct worker *w, size_t page) { return w->region + page * PAGE; }
static void verify(struct worker *w, size_t from, size_t n, const char *where) {
    for (size_t i = from; i < from + n; i++) look(at(w, i), w->owner, i, w->versions[i], where);
}
static void rewrite(struct worker *w, size_t from, size_t n) {
    for (size_t i = from; i < from + n; i++) {
        w->versions[i] = w->next_version++;
        put(at(w, i), w->owner, i, w->versions[i]);
    }
}
static size_t run(struct worker *w, size_t most, size_t *n) {
    *n = 1 + below(w, most);
    if (*n > w->pages) *n = w->pages;
    return below(w, w->pages - *n + 1);
}
static void doing(struct worker *w, const char *what) {
    atomic_store(&w->slot->what[depth], what);
    atomic_store(&w->slot->pid[depth], (int)syscall(SYS_gettid));
    atomic_fetch_add(&w->slot->ticks, 1);
}
static void nap(unsigned us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&t, NULL);
}
/* Children end with those who wait for them, also if those were killed meanwhile. */
static void tied(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
}
static int wait_for(pid_t pid) {
    int status;
    /* One that shares this memory writes the same errno: EINTR may read as another, but nothing else is ECHILD. */
    while (waitpid(pid, &status, 0) != pid) MUST(errno != ECHILD);
    return status;
}
static void ended_well(pid_t pid, const char *who) {
    int status = wait_for(pid);
    if (status) bad("%s %d ended with status %#x", who, (int)pid, status);
}
static void was_killed(pid_t pid, const char *who) {
    int status = wait_for(pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) bad("%s %d ended with status %#x", who, (int)pid, status);
}
static void transfer(struct worker *w, int fd, char *p, size_t n, int out) {
    while (n) {
        ssize_t r = out ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, below(w, 2) ? MSG_WAITALL : 0);
        if (r < 0 && errno == EINTR) continue;
        if (r == 0 && out == 0) bad("the other side of a socket is gone, %zu bytes are missing", n);
        MUST(r > 0);
        p += r, n -= r;
    }
}

/* Memory. */

static void do_write_run(struct worker *w) {
    size_t n, i = run(w, 32, &n);
    rewrite(w, i, n);
}
static void do_read_run(struct worker *w) {
    size_t n, i = run(w, 64, &n);
    verify(w, i, n, "read");
}
static void do_dontneed(struct worker *w) {
    size_t n, i = run(w, 64, &n);
    MUST(madvise(at(w, i), n * PAGE, MADV_DONTNEED) == 0);
    for (size_t k = i; k < i + n; k++) w->versions[k] = 0;
    verify(w, i, 1, "dropped");
}
static void do_drop_free(struct worker *w) {
    size_t n, i = run(w, 32, &n);
    MUST(madvise(at(w, i), n * PAGE, MADV_FREE) == 0);
    /* Until they are written again, each is what it was or zero. */
    for (size_t k = i; k < i + n; k++) {
        const volatile uint64_t *p = (uint64_t *)at(w, k);
        uint64_t base = base_of(w->owner, k, w->versions[k]);
        for (int j = 0; j < WORDS; j++) {
            uint64_t got = p[j];
            if (got && got != word(base, w->versions[k], j)) look(at(w, k), w->owner, k, w->versions[k], "freed");
        }
    }
    rewrite(w, i, n);
}
static void advise(struct worker *w, int advice, const char *what) {
    size_t n, i = run(w, 128, &n);
    MUST(madvise(at(w, i), n * PAGE, advice) == 0);
    verify(w, i, n < 8 ? n : 8, what);
}
static void do_pageout(struct worker *w) { advise(w, MADV_PAGEOUT, "paged out"); }
static void do_cold(struct worker *w) { advise(w, MADV_COLD, "cold"); }
static void do_willneed(struct worker *w) { advise(w, MADV_WILLNEED, "needed"); }
static void do_protect_read(struct worker *w) {
    size_t n, i = run(w, 64, &n);
    MUST(mprotect(at(w, i), n * PAGE, PROT_READ) == 0);
    verify(w, i, n, "read only");
    MUST(mprotect(at(w, i), n * PAGE, PROT_READ | PROT_WRITE) == 0);
}
static void do_protect_none(struct worker *w) {
    size_t n, i = run(w, 256, &n);
    MUST(mprotect(at(w, i), n * PAGE, PROT_NONE) == 0);
    if (below(w, 2)) {
        size_t before = i < 64 ? i : 64;
        rewrite(w, i - before, before);
    }
    if (below(w, 4) == 0) nap(2000);
    MUST(mprotect(at(w, i), n * PAGE, PROT_READ | PROT_WRITE) == 0);
    verify(w, i, n, "was closed");
}
/* The handler gives the right back, or jumps. */
static void do_faults_handled(struct worker *w) {
    size_t n, i = run(w, 8, &n);
    int closed = below(w, 2);
    MUST(mprotect(at(w, i), n * PAGE, closed ? PROT_NONE : PROT_READ) == 0);
    if (below(w, 3) == 0) madvise(at(w, i), n * PAGE, MADV_PAGEOUT);
    fault_from = at(w, i), fault_to = at(w, i + n), faults = 0, fault_jumps = below(w, 2);
    if (!sigsetjmp(jump, 1))
        for (volatile size_t k = 0; k < n; k++) ((volatile char *)at(w, i + k))[9] = ((volatile char *)at(w, i + k))[9];
    fault_from = fault_to = NULL;
    MUST(faults > 0);
    MUST(mprotect(at(w, i), n * PAGE, PROT_READ | PROT_WRITE) == 0);
    verify(w, i, n, "after faults");
}
/* Linux moves no range that it holds in several pieces, which mapping parts of it anew leaves. */
static void remake(struct worker *w) {
    char *p = map(w->pages);
    memcpy(p, w->region, w->pages * PAGE);
    unmap(w->region, w->pages);
    w->region = p;
}
static void do_grow_shrink(struct worker *w) {
    size_t more = 1 + below(w, GROWTH), old = w->pages;
    char *p = mremap(w->region, old * PAGE, (old + more) * PAGE, MREMAP_MAYMOVE);
    if (p == MAP_FAILED && errno == EFAULT) {
        remake(w);
        return;
    }
    MUST(p != MAP_FAILED);
    w->region = p, w->pages = old + more;
    for (size_t k = old; k < w->pages; k++) w->versions[k] = 0;
    verify(w, old, more, "grown");
    rewrite(w, old, more), verify(w, old - 4, more + 4, "grown and written");
    p = mremap(w->region, w->pages * PAGE, old * PAGE, below(w, 2) ? MREMAP_MAYMOVE : 0);
    MUST(p != MAP_FAILED);
    w->region = p, w->pages = old;
    verify(w, old - 8, 8, "shrunk");
}
static char *reserve(size_t pages) {
    char *p = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}
static void do_move_all(struct worker *w) {
    char *to = reserve(w->pages), *p = mremap(w->region, w->pages * PAGE, w->pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (p == MAP_FAILED && errno == EFAULT) {
        unmap(to, w->pages), remake(w);
        return;
    }
    MUST(p == to);
    w->region = p;
    size_t n, i = run(w, 64, &n);
    verify(w, i, n, "moved");
}
static void do_move_parts(struct worker *w) {
    enum { ALL = 96, FIRST = 17, PART = 40 };
    uint32_t version = w->next_version++;
    char *p = map(ALL), *to = reserve(PART);
    for (size_t k = 0; k < ALL; k++) put(p + k * PAGE, w->owner, 100000 + k, version);
    if (below(w, 2)) madvise(p, ALL * PAGE, MADV_PAGEOUT);
    MUST(mremap(p + FIRST * PAGE, PART * PAGE, PART * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    for (size_t k = 0; k < ALL; k++) {
        int moved = k >= FIRST && k < FIRST + PART;
        look(moved ? to + (k - FIRST) * PAGE : p + k * PAGE, w->owner, 100000 + k, version, "part moved");
    }
    unmap(p, FIRST), unmap(p + (FIRST + PART) * PAGE, ALL - FIRST - PART), unmap(to, PART);
}
static void do_map_again(struct worker *w) {
    size_t n, i = run(w, 48, &n);
    char *p = mmap(at(w, i), n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    MUST(p == at(w, i));
    for (size_t k = i; k < i + n; k++) w->versions[k] = 0;
    verify(w, i, n, "mapped again");
    unmap(w->scratch, SCRATCH), w->scratch = map(SCRATCH);
}
static void do_lock(struct worker *w) {
    size_t n, i = run(w, 16, &n);
    int locked = mlock(at(w, i), n * PAGE);
    MUST(locked == 0 || errno == ENOMEM || errno == EPERM || errno == EAGAIN);
    verify(w, i, n, "locked"), rewrite(w, i, n);
    MUST(munlock(at(w, i), n * PAGE) == 0);
}

/* Files and sockets. */

static int new_file(void) {
    int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    char name[64];
    snprintf(name, sizeof name, "stress-%d-%d", (int)getpid(), (int)syscall(SYS_gettid));
    fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    MUST(fd >= 0);
    unlink(name);
    return fd;
}
static void whole(ssize_t r, size_t n, const char *what) {
    if (r != (ssize_t)n) bad("%s of %zu bytes gave %zd (errno %d)", what, n, r, errno);
}
static void do_file(struct worker *w) {
    size_t n, i = run(w, 1024, &n);
    int fd = new_file();
    whole(pwrite(fd, at(w, i), n * PAGE, 100), n * PAGE, "pwrite");
    if (below(w, 2)) madvise(at(w, i), n * PAGE, below(w, 2) ? MADV_DONTNEED : MADV_PAGEOUT);
    /* Overwritten by what is read. */
    whole(pread(fd, at(w, i), n * PAGE, 100), n * PAGE, "pread");
    verify(w, i, n, "from a file");
    close(fd);
}
static void do_file_vector(struct worker *w) {
    enum { MOST = 24 };
    struct iovec out[MOST], in[MOST];
    size_t from[MOST], lengths[MOST], total = 0;
    int count = 1 + below(w, MOST), fd = new_file();
    char *p = map(MOST * 9);
    for (int k = 0; k < count; k++) {
        from[k] = run(w, 8, &lengths[k]);
        out[k] = (struct iovec){at(w, from[k]), lengths[k] * PAGE};
        in[k] = (struct iovec){p + k * 9 * PAGE, lengths[k] * PAGE};
        total += lengths[k] * PAGE;
    }
    whole(writev(fd, out, count), total, "writev");
    if (below(w, 2)) madvise(p, MOST * 9 * PAGE, MADV_PAGEOUT);
    int again = below(w, 2);
    if (again) MUST(lseek(fd, 0, SEEK_SET) == 0);
    whole(again ? readv(fd, in, count) : preadv(fd, in, count, 0), total, "readv");
    for (int k = 0; k < count; k++)
        for (size_t j = 0; j < lengths[k]; j++)
            look(p + (k * 9 + j) * PAGE, w->owner, from[k] + j, w->versions[from[k] + j], "from a vector");
    close(fd), unmap(p, MOST * 9);
}
static void do_socket(struct worker *w) {
    size_t n, i = run(w, 12, &n);
    char *p = map(n);
    if (below(w, 2)) madvise(at(w, i), n * PAGE, MADV_PAGEOUT);
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    transfer(w, ends[0], at(w, i), n * PAGE, 1), transfer(w, ends[1], p, n * PAGE, 0);
    close(ends[0]), close(ends[1]);
    for (size_t k = 0; k < n; k++) look(p + k * PAGE, w->owner, i + k, w->versions[i + k], "from a socket");
    unmap(p, n);
}
static pid_t new_child(struct worker *w, const char *what) {
    doing(w, what);
    pid_t parent = getpid(), pid = fork();
    MUST(pid >= 0);
    if (pid == 0) tied(parent), depth++, doing(w, what);
    return pid;
}
static void do_socket_large(struct worker *w) {
    size_t n, i = run(w, 1024, &n);
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_t pid = new_child(w, "sends much");
    if (pid == 0) {
        transfer(w, ends[0], at(w, i), n * PAGE, 1);
        _exit(0);
    }
    char *p = map(n);
    transfer(w, ends[1], p, n * PAGE, 0);
    for (size_t k = 0; k < n; k++) look(p + k * PAGE, w->owner, i + k, w->versions[i + k], "from a child");
    ended_well(pid, "sender");
    close(ends[0]), close(ends[1]), unmap(p, n);
}

/* Processes. */

static void step(struct worker *w);

static void do_fork_work(struct worker *w) {
    if (depth >= DEEPEST) return;
    pid_t pid = new_child(w, "forked");
    if (pid == 0) {
        if (below(w, 3) == 0) verify(w, 0, w->pages, "all in a child");
        int steps = 1 + below(w, STEPS_OF_A_CHILD);
        for (int i = 0; i < steps && !shared->stop; i++) step(w);
        if (below(w, 3) == 0) verify(w, 0, w->pages, "all in a child, after");
        _exit(0);
    }
    /* Both go on. */
    if (below(w, 2)) do_write_run(w), do_dontneed(w), do_read_run(w);
    doing(w, "waits for a child");
    ended_well(pid, "child");
}
static void do_fork_killed(struct worker *w) {
    if (depth >= DEEPEST) return;
    pid_t pid = new_child(w, "to be killed");
    if (pid == 0)
        for (;;) step(w);
    unsigned us = below(w, 20000);
    do_write_run(w), do_read_run(w);
    nap(us);
    kill(pid, SIGKILL);
    doing(w, "waits for a killed child");
    was_killed(pid, "killed child");
    do_read_run(w);
}
static void do_fork_dropped(struct worker *w) {
    if (depth >= DEEPEST || geteuid() != 0) return;
    pid_t parent = getpid(), pid = new_child(w, "without rights");
    if (pid == 0) {
        if (below(w, 2)) verify(w, 0, w->pages / 4, "before");
        MUST(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        if (below(w, 2)) MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        tied(parent);
        verify(w, 0, w->pages, "without rights");
        for (int i = 0; i < STEPS_OF_A_CHILD; i++) step(w);
        _exit(0);
    }
    do_write_run(w), do_read_run(w);
    doing(w, "waits for a child without rights");
    ended_well(pid, "child without rights");
}
static void do_vfork_exec(struct worker *w) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl(self_path, "stress", "--true", NULL);
        _exit(99);
    }
    MUST(pid > 0);
    doing(w, "waits for an executed child");
    ended_well(pid, "executed child");
}
/* What a child that borrows the memory does: it reads what is checked and writes what is not. */
static void borrow(struct worker *w, uint64_t x, int calls) {
    x = mix(x + w->steps);
    size_t page = x % w->pages;
    look(at(w, page), w->owner, page, w->versions[page], "borrowed");
    char *p = w->scratch + (x >> 20) % (SCRATCH - 8) * PAGE;
    p[x >> 40 & 0xfff]++;
    if (calls && (x >> 52) % 3 == 0) {
        if (pread(w->ends[0], p + 100, 20000, 0) >= 0 || write(-1, p, 20000) >= 0) _exit(4);
        struct iovec v[2] = {{p, 200}, {p + 3 * PAGE, 9000}};
        if (writev(-1, v, 2) >= 0) _exit(4);
    }
    if (calls && (x >> 54) % 16 == 0) madvise(p, 8 * PAGE, MADV_PAGEOUT);
    w->steps++;
}
static void scratch_works(struct worker *w) {
    uint32_t version = w->next_version++;
    for (size_t k = 0; k < SCRATCH; k++) put(w->scratch + k * PAGE, w->owner, k, version);
    for (size_t k = 0; k < SCRATCH; k++) look(w->scratch + k * PAGE, w->owner, k, version, "scratch");
}
static void do_vfork_touch(struct worker *w) {
    uint64_t x = next(w);
    pid_t pid = vfork();
    if (pid == 0) {
        for (int i = 0; i < 50; i++) borrow(w, x, 1);
        _exit(0);
    }
    MUST(pid > 0);
    ended_well(pid, "vforked child");
}
static void do_vfork_killed(struct worker *w) {
    uint64_t x = next(w);
    w->steps = 0;
    pid_t parent = getpid(), pid = vfork();
    if (pid == 0) {
        tied(parent);
        /* The helper thread waits for a few steps, then kills. */
        w->victim = getpid();
        for (;;) borrow(w, x, 1);
    }
    MUST(pid > 0);
    doing(w, "waits for a killed vforked child");
    was_killed(pid, "vforked child");
    scratch_works(w), do_read_run(w);
}
static int shares(void *arg) {
    struct worker *w = arg;
    tied(w->process);
    for (int i = 0; i < 200; i++) borrow(w, i, 1);
    syscall(SYS_exit_group, 0);
    return 0;
}
static int shares_for_ever(void *arg) {
    struct worker *w = arg;
    tied(w->process);
    for (uint64_t i = 0;; i++) borrow(w, i, 1);
    return 0;
}
static void do_clone_vm(struct worker *w) {
    w->process = getpid();
    pid_t pid = clone(shares, w->stack + STACK, CLONE_VM | SIGCHLD, w);
    MUST(pid > 0);
    do_read_run(w);
    doing(w, "waits for a child that shares memory");
    ended_well(pid, "sharing child");
}
static void do_clone_vm_killed(struct worker *w) {
    unsigned us = below(w, 5000);
    w->process = getpid();
    pid_t pid = clone(shares_for_ever, w->stack + STACK, CLONE_VM | SIGCHLD, w);
    MUST(pid > 0);
    do_read_run(w);
    nap(us);
    kill(pid, SIGKILL);
    doing(w, "waits for a killed child that shared memory");
    was_killed(pid, "sharing child");
    scratch_works(w), do_read_run(w);
}
static void do_spawn(struct worker *w) {
    char *words[] = {"stress", "--true", NULL};
    pid_t pid;
    MUST(posix_spawn(&pid, self_path, NULL, NULL, words, environ) == 0);
    doing(w, "waits for a spawned child");
    ended_well(pid, "spawned child");
}
struct handover {
    unsigned long seed;
    unsigned owner;
    uint32_t n;
    size_t from;
};
static void pipe_out(int fd, const void *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t r = write(fd, (const char *)p + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        MUST(r > 0);
        done += r;
    }
}
static void pipe_in(int fd, void *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t r = read(fd, (char *)p + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        MUST(r > 0);
        done += r;
    }
}
static void *busy(void *arg) {
    struct worker *w = arg;
    for (size_t i = 0;; i = (i + 1) % w->pages) (void)*(volatile char *)at(w, i);
    return NULL;
}
static void do_exec_self(struct worker *w) {
    if (depth >= DEEPEST) return;
    struct handover h = {.seed = seed, .owner = w->owner};
    size_t n;
    h.from = run(w, 512, &n), h.n = n;
    int threads = below(w, 2), ends[2];
    pid_t pid = new_child(w, "to be executed");
    if (pid == 0) {
        MUST(pipe(ends) == 0);
        pid_t parent = getpid(), feeder = fork();
        MUST(feeder >= 0);
        if (feeder == 0) {
            tied(parent), close(ends[0]);
            pipe_out(ends[1], &h, sizeof h), pipe_out(ends[1], w->versions + h.from, h.n * sizeof *w->versions);
            pipe_out(ends[1], at(w, h.from), h.n * PAGE);
            _exit(0);
        }
        close(ends[1]);
        /* With others at work, which end there. */
        pthread_t t;
        for (int i = 0; i < 2 * threads; i++) MUST(pthread_create(&t, NULL, busy, w) == 0);
        if (threads) nap(1000);
        char number[16];
        snprintf(number, sizeof number, "%d", ends[0]);
        execl(self_path, "stress", "--receive", number, NULL);
        _exit(98);
    }
    do_write_run(w);
    doing(w, "waits for a program with its state");
    ended_well(pid, "program with our state");
}

/* Threads and signals. */

static void do_jump(struct worker *w) {
    int ways = below(w, 3);
    for (volatile int i = 0; i < 6; i++) {
        if (!sigsetjmp(jump, 1)) {
            armed = 1, w->poke = 1;
            struct iovec v[2] = {{w->scratch + 100, 3000}, {w->scratch + 20 * PAGE, 9000}};
            if (ways == 0)
                for (size_t k = 0; armed; k = (k + 1) % w->pages) verify(w, k, 1, "before a jump");
            else if (ways == 1)
                while (armed) (void)!read(w->ends[0], w->scratch + 5 * PAGE, 20000);
            else
                while (armed) (void)!readv(w->ends[0], v, 2);
        }
        armed = 0, w->poke = 0;
    }
    do_read_run(w);
}
static void *short_lived(void *arg) {
    struct worker *w = arg;
    char room[20000];
    memset(room, 7, sizeof room);
    verify(w, 0, w->pages < 100 ? w->pages : 100, "in a new thread");
    for (size_t i = 0; i < sizeof room; i += 1000) MUST(room[i] == 7);
    return arg;
}
static void do_thread(struct worker *w) {
    pthread_t t;
    pthread_attr_t a;
    void *result, *stack = NULL;
    MUST(pthread_attr_init(&a) == 0);
    if (below(w, 3) == 0) {
        MUST((stack = aligned_alloc(PAGE, STACK)));
        MUST(pthread_attr_setstack(&a, stack, STACK) == 0);
    }
    MUST(pthread_create(&t, &a, short_lived, w) == 0);
    do_read_run(w);
    MUST(pthread_join(t, &result) == 0 && result == w);
    pthread_attr_destroy(&a), free(stack);
}
static void cleanup(void *arg) { *(int *)arg = 1; }
struct blocked {
    struct worker *w;
    int began, cleaned;
};
static void *blocks(void *arg) {
    struct blocked *b = arg;
    pthread_cleanup_push(cleanup, &b->cleaned);
    b->began = 1;
    for (;;) {
        (void)!read(b->w->ends[0], b->w->scratch + 30 * PAGE, 9000);
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return NULL;
}
static void do_cancel(struct worker *w) {
    struct blocked b = {w, 0, 0};
    pthread_t t;
    void *result;
    MUST(pthread_create(&t, NULL, blocks, &b) == 0);
    nap(below(w, 3000));
    madvise(w->scratch, SCRATCH * PAGE, MADV_PAGEOUT);
    MUST(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
    MUST(b.cleaned == b.began);
}

static void (*const operations[])(struct worker *) = {
#define X(name, weight, child) do_##name,
    OPERATIONS(X)
#undef X
};
static void step(struct worker *w) {
    static int total;
    if (!total)
        for (int i = 0; i < OPS; i++) total += op_weights[i];
    int at = below(w, total), op = 0;
    while (at >= op_weights[op]) at -= op_weights[op++];
    if (depth && !op_in_child[op]) return;
    doing(w, op_names[op]);
    operations[op](w);
    atomic_fetch_add_explicit(&shared->done[op], 1, memory_order_relaxed);
}

static void on_signal(int s) {
    static _Atomic unsigned turn;
    int saved = errno;
    for (int i = 0; i < 3; i++) {
        size_t page = turn++ * 37 % COMMON;
        look(common + page * PAGE, COMMON_OWNER, page, (uint32_t)page + 1, "in a signal handler");
    }
    errno = saved;
    if (armed && s == SIGUSR1) {
        armed = 0;
        siglongjmp(jump, 1);
    }
}
static void on_fault(int s, siginfo_t *i, void *c) {
    greg_t *r = ((ucontext_t *)c)->uc_mcontext.gregs;
    char *p = i->si_addr;
    if (!fault_from || p < fault_from || p >= fault_to)
        bad("signal %d at %p, code %d, which nobody expects: thread %d, instruction %p, stack %p", s, (void *)p, i->si_code,
            (int)gettid(), (void *)r[REG_RIP], (void *)r[REG_RSP]);
    faults++;
    if (fault_jumps) siglongjmp(jump, 1);
    MUST(mprotect((void *)((uintptr_t)p & -PAGE), PAGE, PROT_READ | PROT_WRITE) == 0);
}
static void install(int s, int flags) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = flags};
    MUST(sigaction(s, &a, NULL) == 0);
}
static void handlers(void) {
    install(SIGPROF, SA_RESTART), install(SIGALRM, SA_RESTART | SA_ONSTACK), install(SIGVTALRM, 0);
    install(SIGUSR1, 0);
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    MUST(sigaction(SIGSEGV, &a, NULL) == 0 && sigaction(SIGBUS, &a, NULL) == 0);
}
static void timers(void) {
    struct itimerval often[3] = {{{0, 3000}, {0, 3000}}, {{0, 7000}, {0, 7000}}, {{0, 11000}, {0, 11000}}};
    MUST(setitimer(ITIMER_PROF, &often[0], NULL) == 0 && setitimer(ITIMER_REAL, &often[1], NULL) == 0);
    MUST(setitimer(ITIMER_VIRTUAL, &often[2], NULL) == 0);
}
static struct worker *new_worker(unsigned owner, struct slot *slot, size_t pages) {
    struct worker *w = calloc(1, sizeof *w);
    MUST(w);
    w->owner = owner, w->slot = slot, w->pages = pages, w->random = mix(seed * 1000 + owner);
    w->region = map(pages), w->scratch = map(SCRATCH), w->next_version = 1;
    w->versions = calloc(pages + GROWTH, sizeof *w->versions);
    w->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    MUST(w->versions && w->stack != MAP_FAILED);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->ends) == 0);
    return w;
}
static void *works(void *arg) {
    struct worker *w = arg;
    stack_t stack = {.ss_size = 64 << 10};
    if (w->owner & 1) {
        MUST((stack.ss_sp = malloc(stack.ss_size)));
        MUST(sigaltstack(&stack, NULL) == 0);
    }
    w->self = pthread_self();
    while (!shared->stop) step(w);
    doing(w, "looks at all");
    verify(w, 0, w->pages, "at the end");
    doing(w, "has ended");
    stack.ss_flags = SS_DISABLE;
    if (w->owner & 1) sigaltstack(&stack, NULL);
    return NULL;
}
struct helped {
    struct worker **workers;
    int count;
};
/* Kills vforked children after a few steps, and interrupts who asks for it. */
static void *helps(void *arg) {
    struct helped *h = arg;
    sigset_t all;
    uint64_t x = seed;
    sigfillset(&all), pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (!helper_stop) {
        nap(300 + (x = mix(x)) % 3000);
        for (int i = 0; i < h->count; i++) {
            struct worker *w = h->workers[i];
            if (w->victim && w->steps > 3) {
                int pid = w->victim;
                w->victim = 0;
                kill(pid, SIGKILL);
            }
            if (w->poke) pthread_kill(w->self, SIGUSR1);
        }
    }
    return NULL;
}
static int process(int index, int threads, size_t pages) {
    handlers();
    common = map(COMMON);
    for (size_t i = 0; i < COMMON; i++) put(common + i * PAGE, COMMON_OWNER, i, (uint32_t)i + 1);
    struct worker *workers[MOST_THREADS];
    for (int i = 0; i < threads; i++)
        workers[i] = new_worker(1 + index * MOST_THREADS + i, &shared->slots[index * MOST_THREADS + i], pages);
    struct helped h = {workers, threads};
    pthread_t helper;
    MUST(pthread_create(&helper, NULL, helps, &h) == 0);
    if (!getenv("NO_TIMERS")) timers();
    for (int i = 0; i < threads; i++) MUST(pthread_create(&workers[i]->thread, NULL, works, workers[i]) == 0);
    for (int i = 0; i < threads; i++) MUST(pthread_join(workers[i]->thread, NULL) == 0);
    helper_stop = 1;
    MUST(pthread_join(helper, NULL) == 0);
    return 0;
}
static void share(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
}
/* The other side of `exec_self`. */
static int receive(int fd) {
    struct handover h;
    share();
    pipe_in(fd, &h, sizeof h);
    seed = h.seed, depth = 2;
    uint32_t *versions = calloc(h.n, sizeof *versions);
    MUST(versions);
    pipe_in(fd, versions, h.n * sizeof *versions);
    char *p = map(h.n), byte;
    pipe_in(fd, p, h.n * (size_t)PAGE);
    MUST(read(fd, &byte, 1) == 0);
    for (size_t i = 0; i < h.n; i++) look(p + i * PAGE, h.owner, h.from + i, versions[i], "handed over");
    while (wait(NULL) > 0 || errno == EINTR) {
    }
    handlers();
    common = map(COMMON);
    for (size_t i = 0; i < COMMON; i++) put(common + i * PAGE, COMMON_OWNER, i, (uint32_t)i + 1);
    struct worker *w = new_worker(h.owner + 500, &shared->slots[0], 512);
    for (int i = 0; i < STEPS_OF_A_CHILD; i++) step(w);
    verify(w, 0, w->pages, "in a new program");
    for (size_t i = 0; i < h.n; i++) look(p + i * PAGE, h.owner, h.from + i, versions[i], "handed over, later");
    return 0;
}
static void tell_slots(void) {
    for (int i = 0; i < PROCESSES * MOST_THREADS; i++) {
        struct slot *s = &shared->slots[i];
        if (!s->what[0]) continue;
        char line[300];
        int n = snprintf(line, sizeof line, "  thread %d, %lu steps:", i, s->ticks);
        for (int k = 0; k < DEEPEST + 2 && s->what[k] && n < 250; k++)
            n += snprintf(line + n, sizeof line - n, "%s %s (%d)", k ? "; child" : "", s->what[k], s->pid[k]);
        say("%s", line);
    }
}
static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--true")) return 0;
    ssize_t n = readlink("/proc/self/exe", self_path, sizeof self_path - 1);
    MUST(n > 0);
    if (argc == 3 && !strcmp(argv[1], "--receive")) return receive(atoi(argv[2]));
    if (argc < 4) {
        say("stress SECONDS SEED THREADS [MIB [OPERATION...]]");
        return 64;
    }
    int seconds = atoi(argv[1]), threads = atoi(argv[3]);
    size_t mib = argc > 4 ? atol(argv[4]) : 64;
    seed = strtoul(argv[2], NULL, 0);
    MUST(threads > 0 && threads <= MOST_THREADS);
    for (int op = OP_read_run + 1; argc > 5 && op < OPS; op++) {
        int named = 0;
        for (int i = 5; i < argc; i++) named |= !strcmp(argv[i], op_names[op]);
        if (!named) op_weights[op] = 0;
    }
    size_t pages = mib * 256 / PROCESSES / threads;
    MUST(pages >= 256);
    share();
    printf("seed %lu\n", seed), fflush(stdout);
    pid_t pids[PROCESSES], watcher = getpid();
    int running = PROCESSES, result = 0;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        MUST(pids[i] >= 0);
        if (pids[i] == 0) tied(watcher), exit(process(i, threads, pages));
    }
    unsigned long seen[PROCESSES * MOST_THREADS] = {0};
    double start = now_s(), changed[PROCESSES * MOST_THREADS];
    for (int i = 0; i < PROCESSES * MOST_THREADS; i++) changed[i] = start;
    while (running && !result) {
        nap(50000);
        double now = now_s();
        if (now - start >= seconds) shared->stop = 1;
        for (int i = 0; i < PROCESSES; i++) {
            int status;
            if (pids[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                pids[i] = 0, running--;
                if (status) say("process %d ended with status %#x", i, status), result = 1;
            }
        }
        if (shared->bad) result = 1;
        for (int i = 0; i < PROCESSES * MOST_THREADS; i++) {
            struct slot *s = &shared->slots[i];
            if (s->ticks != seen[i] || !s->what[0] || !strcmp(s->what[0], "has ended"))
                seen[i] = s->ticks, changed[i] = now;
            else if (now - changed[i] > SILENCE_S && !result) {
                say("HANG (seed %lu): thread %d did nothing for %d s", seed, i, SILENCE_S);
                result = 2;
            }
        }
    }
    if (result) tell_slots();
    for (int i = 0; i < PROCESSES; i++)
        if (pids[i]) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0);
    unsigned long total = 0;
    for (int i = 0; i < OPS; i++) total += shared->done[i];
    printf("%lu operations:", total);
    for (int i = 0; i < OPS; i++) printf(" %s %lu%s", op_names[i], shared->done[i], i + 1 < OPS ? "," : "\n");
    printf("bad %d\n", shared->bad);
    return result;
}
