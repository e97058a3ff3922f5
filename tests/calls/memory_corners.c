/* Corners of memory calls: parts of ranges that children are not to have, locks that come before access, moves of what is locked, limits, hints. */
#include "common.h"
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
enum { WIPES = 64 };

/* What children are not to have moves with a part of it, grows with it, and stays where there is no room to remember more. */
static void left_to_children(void) {
    for (int advice = MADV_DONTFORK; advice <= MADV_WIPEONFORK; advice += MADV_WIPEONFORK - MADV_DONTFORK) {
        char *p = fresh(8);
        memset(p, 7, 8 * PAGE), OK(madvise(p, 8 * PAGE, advice));
        /* Half of it, to a place of its own, and to one that the kernel gives. */
        char *q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        CHECK(q != MAP_FAILED), EQ(q[0], 7), check_zero(p, 4 * PAGE);
        char *r = mremap(p + 4 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x10000000);
        CHECK(r == (void *)0x10000000), EQ(r[0], 7);
        OK(madvise(q, 4 * PAGE, advice)), OK(madvise(q, 4 * PAGE, advice));
        if (advice == MADV_WIPEONFORK) expect_exit(CHILD(check_zero(q, 4 * PAGE); check_zero(r, 2 * PAGE); check_zero(p + 6 * PAGE, 2 * PAGE)), 0);
        EQ(q[0], 7), EQ(r[0], 7), EQ(p[6 * PAGE], 7);
        OK(munmap(p, 4 * PAGE)), OK(munmap(p + 6 * PAGE, 2 * PAGE)), OK(munmap(q, 4 * PAGE)), OK(munmap(r, 2 * PAGE));
    }
    char *many[WIPES];
    for (int i = 0; i < WIPES; i++) {
        many[i] = fresh(4), memset(many[i], 7, 3 * PAGE);
        OK(madvise(many[i], 3 * PAGE, MADV_WIPEONFORK));
    }
    /* A hole makes two of one: that is refused where the second would be forgotten. */
    int cut = munmap(many[5] + PAGE, PAGE) == 0;
    if (!cut) EQ(errno, ENOMEM), EQ(many[5][PAGE], 7);
    expect_exit(CHILD(check_zero(many[5], PAGE); check_zero(many[5] + 2 * PAGE, PAGE); check_zero(many[9], 3 * PAGE)), 0);
    for (int i = 0; i < WIPES; i++) OK(munmap(many[i], 4 * PAGE));
}

static size_t present(char *p, size_t pages) {
    unsigned char there[256];
    size_t n = 0;
    CHECK(pages <= sizeof there), OK(mincore(p, pages * PAGE, there));
    for (size_t i = 0; i < pages; i++) n += there[i] & 1;
    return n;
}
/* What is locked stays locked: also if it has access only later, and if it moves. */
static void locked(void) {
    OK(mlockall(MCL_FUTURE));
    char *p = mmap(NULL, 100 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    OK(mprotect(p, 100 * PAGE, PROT_READ | PROT_WRITE));
    fill(p, 100 * PAGE, 3), pressure(1);
    expect_errno(madvise(p, 100 * PAGE, MADV_PAGEOUT), EINVAL), expect_errno(madvise(p, 100 * PAGE, MADV_DONTNEED), EINVAL);
    EQ(present(p, 100), 100), check(p, 100 * PAGE, 3);
    OK(munlockall());
    OK(munmap(p, 100 * PAGE));
    p = fresh(100);
    OK(mlock(p, 100 * PAGE)), fill(p, 100 * PAGE, 4);
    char *q = mremap(p, 100 * PAGE, 200 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    expect_errno(madvise(q, 100 * PAGE, MADV_PAGEOUT), EINVAL), EQ(present(q, 100), 100), check(q, 100 * PAGE, 4);
    expect_errno(msync(q, PAGE, MS_SYNC | MS_INVALIDATE), EBUSY);
    OK(munmap(q, 200 * PAGE));
    /* A child has no locks, whatever it does not have at all. */
    p = fresh(1024);
    OK(mlock(p, 1024 * PAGE)), OK(madvise(p, 1024 * PAGE, MADV_DONTFORK));
    struct rlimit few = {5 << 20, 5 << 20};
    expect_exit(CHILD(OK(setrlimit(RLIMIT_MEMLOCK, &few)); setresuid(65534, 65534, 65534);
                      char *mine = fresh(1024); OK(mlock(mine, 1024 * PAGE));
                      expect_errno(mlock(fresh(1024), 1024 * PAGE), ENOMEM);
                      CHECK(mremap(mine, 1024 * PAGE, 2048 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EAGAIN)), 0);
    OK(munlock(p, 1024 * PAGE)), OK(munmap(p, 1024 * PAGE));
}

/* A limit holds for what comes after something large is gone, and for no size in particular. */
static void limits(void) {
    const size_t GIB = 1UL << 30;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *large = mmap(NULL, 4 * GIB, PROT_NONE, flags, -1, 0);
    CHECK(large != MAP_FAILED);
    struct rlimit two = {2 * GIB, RLIM_INFINITY};
    OK(setrlimit(RLIMIT_AS, &two)), OK(munmap(large, 4 * GIB));
    int n = 0;
    while (mmap(NULL, GIB / 4, PROT_NONE, flags, -1, 0) != MAP_FAILED) n++;
    CHECK(n <= 8);
}
static void no_size_in_particular(void) {
    const size_t GIB = 1UL << 30;
    struct rlimit much = {64 * GIB, RLIM_INFINITY};
    OK(setrlimit(RLIMIT_AS, &much));
    /* That is how mimalloc's reserve is told, which would leave too little (`--malloc mimalloc`). */
    const char *libraries = getenv("LD_PRELOAD");
    int is_mimalloc = libraries && strstr(libraries, "outswap_malloc");
    for (long more = -1; more <= 1; more += is_mimalloc ? 2 : 1)
        CHECK(mmap(NULL, GIB + more * (long)PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED);
}

/* Arguments as the kernel reads them. */
static void arguments(void) {
    char *p = fresh(2), *hint = fresh(64);
    fill(p, PAGE, 9), OK(munmap(hint, 64 * PAGE));
    CHECK(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, hint) == hint), check(hint, PAGE, 9);
    OK(munmap(hint, PAGE));
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1) == MAP_FAILED), EQ(errno, EINVAL);
    OK(syscall(SYS_pkey_mprotect, p, PAGE, PROT_READ, 0xffffffffUL)), OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
    /* A key that is given can be used; who gets none goes on without. */
    int key = syscall(SYS_pkey_alloc, 0, 0);
    if (key >= 0) {
        OK(syscall(SYS_pkey_mprotect, p, PAGE, PROT_READ | PROT_WRITE, key));
        OK(syscall(SYS_pkey_mprotect, p, PAGE, PROT_READ | PROT_WRITE, 0));
        OK(syscall(SYS_pkey_free, key));
    } else CHECK(errno == ENOSYS || errno == ENOSPC || errno == EINVAL); // The last from a processor without them.
    /* A buffer for a directory may be longer than what there is to be read, or than what may be in memory. */
    size_t bytes = 1UL << 31;
    char *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int here = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(room != MAP_FAILED && here >= 0);
    CHECK(syscall(SYS_getdents64, here, room, INT_MAX) > 0), EQ(syscall(SYS_getdents64, here, room, INT_MAX), 0);
    EQ(lseek(here, 0, SEEK_SET), 0), expect_errno(syscall(SYS_getdents64, here, room, 1UL << 32), EINVAL);
    OK(close(here)), OK(munmap(room, bytes));
    /* Advice for another process is about its memory. */
    int ready[2], go[2];
    OK(pipe(ready)), OK(pipe(go));
    pid_t pid = CHILD(char *mine = fresh(2); memset(mine, 1, 2 * PAGE); EQ(write(ready[1], &mine, sizeof mine), sizeof mine);
                      EQ(read(go[0], &mine, 1), 1); EQ(mine[PAGE], 1));
    struct iovec its = {NULL, 2 * PAGE}, list[IOV_MAX + 1] = {{0}};
    EQ(read(ready[0], &its.iov_base, sizeof its.iov_base), sizeof its.iov_base);
    int fd = syscall(SYS_pidfd_open, pid, 0), own = syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0 && own >= 0) {
        long n = syscall(SYS_process_madvise, fd, &its, 1, MADV_COLD, 0);
        if (n != 2 * (long)PAGE) CHECK(n == -1 && (errno == EPERM || errno == ENOSYS));
        if (errno != ENOSYS) expect_errno(syscall(SYS_process_madvise, own, list, IOV_MAX + 1, MADV_COLD, 0), EINVAL);
    }
    EQ(write(go[1], "", 1), 1), expect_exit(pid, 0);
    OK(munmap(p, 2 * PAGE));
}

int main(void) {
    tmpdir();
    pressure(48);
    left_to_children();
    expect_exit(CHILD(locked()), 0);
    expect_exit(CHILD(limits()), 0), expect_exit(CHILD(no_size_in_particular()), 0);
    arguments();
    puts("ok");
    return 0;
}
