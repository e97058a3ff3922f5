/* Shared anonymous memory in one process: every memory call that can tell it from private memory. */
#include "common.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static char *shared(size_t pages) {
    char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("cannot map %zu shared pages: errno %d", pages, errno);
    return p;
}

static void plain(void) {
    char *p = shared(64);
    check_zero(p, 64 * PAGE);
    fill(p, 64 * PAGE, 300), evict(p, 64 * PAGE), check(p, 64 * PAGE, 300);
    evict(p, 64 * PAGE);
    OK(CALL(mprotect, p + 8 * PAGE, 8 * PAGE, PROT_NONE)), OK(CALL(mprotect, p + 24 * PAGE, 8 * PAGE, PROT_READ));
    check(p, 8 * PAGE, 300), check_from(p + 16 * PAGE, 48 * PAGE, 300, 16 * PAGE);
    OK(CALL(mprotect, p, 64 * PAGE, PROT_READ | PROT_WRITE));
    check(p, 64 * PAGE, 300);
    OK(CALL(msync, p, 64 * PAGE, MS_SYNC));
    OK(CALL(mlock, p, 4 * PAGE)), OK(CALL(munlock, p, 4 * PAGE));
    /* The kernel reads and writes it. */
    int fds[2];
    OK(pipe(fds));
    evict(p, 64 * PAGE);
    EQ(write(fds[1], p, 2 * PAGE), 2 * PAGE);
    EQ(read(fds[0], p + 40 * PAGE, 2 * PAGE), 2 * PAGE);
    check(p + 40 * PAGE, 2 * PAGE, 300);
    OK(close(fds[0])), OK(close(fds[1]));
    OK(CALL(munmap, p, 64 * PAGE));
    p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    check_zero(p, 8 * PAGE);
    OK(munmap(p, 8 * PAGE));
    p = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    OK(mprotect(p, 8 * PAGE, PROT_READ | PROT_WRITE));
    fill(p, 8 * PAGE, 301), evict(p, 8 * PAGE), check(p, 8 * PAGE, 301);
    OK(munmap(p, 8 * PAGE));
    expect_errno(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0), EINVAL);
    expect_errno(mmap(NULL, 0, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0), EINVAL);
    expect_errno(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0), EINVAL);
}

/* More than there is memory for. */
static void large(void) {
    size_t pages = 48 * MIB / PAGE;
    char *p = shared(pages);
    for (size_t i = 0; i < pages; i++) fill_from(p + i * PAGE, 64, 302, i);
    for (size_t i = 0; i < pages; i++) check_from(p + i * PAGE, 64, 302, i);
    for (size_t i = pages; i-- > 0;) check_from(p + i * PAGE, 64, 302, i);
    OK(munmap(p, pages * PAGE));
}

static void advice(void) {
    char *p = shared(32);
    fill(p, 32 * PAGE, 310), evict(p, 16 * PAGE);
    /* The content is the object's: it stays. */
    OK(CALL(madvise, p, 32 * PAGE, MADV_DONTNEED));
    check(p, 32 * PAGE, 310);
    expect_errno(CALL(madvise, p, 32 * PAGE, MADV_FREE), EINVAL);
    expect_errno(CALL(madvise, p, 32 * PAGE, MADV_WIPEONFORK), EINVAL);
    OK(CALL(madvise, p, 32 * PAGE, MADV_KEEPONFORK)), OK(CALL(madvise, p, 32 * PAGE, MADV_DOFORK));
    OK(CALL(madvise, p, 32 * PAGE, MADV_WILLNEED)), OK(CALL(madvise, p, 32 * PAGE, MADV_COLD));
    check(p, 32 * PAGE, 310);
    evict(p, 16 * PAGE);
    OK(CALL(madvise, p + 8 * PAGE, 16 * PAGE, MADV_REMOVE));
    check(p, 8 * PAGE, 310), check_zero(p + 8 * PAGE, 16 * PAGE), check_from(p + 24 * PAGE, 8 * PAGE, 310, 24 * PAGE);
    OK(mlock(p, PAGE));
    expect_errno(CALL(madvise, p, 2 * PAGE, MADV_DONTNEED), EINVAL);
    expect_errno(CALL(madvise, p, 2 * PAGE, MADV_REMOVE), EINVAL);
    OK(munlock(p, PAGE));
    OK(munmap(p, 32 * PAGE));
    /* What a child is not to have. */
    p = shared(8);
    fill(p, 8 * PAGE, 311), evict(p, 8 * PAGE);
    OK(CALL(madvise, p, 4 * PAGE, MADV_DONTFORK));
    expect_exit(CHILD({
        unsigned char in;
        expect_errno(mincore(p, PAGE, &in), ENOMEM);
        check_from(p + 4 * PAGE, 4 * PAGE, 311, 4 * PAGE);
        fill(p + 4 * PAGE, 4 * PAGE, 312);
    }), 0);
    check(p, 4 * PAGE, 311), check(p + 4 * PAGE, 4 * PAGE, 312);
    OK(munmap(p, 8 * PAGE));
}

static char *moved(char *p, size_t old, size_t new, int flags, void *to) {
    char *q = raw_mode ? (char *)syscall(SYS_mremap, p, old * PAGE, new * PAGE, flags, to)
                       : mremap(p, old * PAGE, new * PAGE, flags, to);
    if (q == MAP_FAILED) die("mremap of %zu to %zu pages: errno %d, raw %d", old, new, errno, raw_mode);
    return q;
}

static void remap(void) {
    /* No old length: a second mapping of the same memory. */
    char *p = shared(16);
    fill(p, 16 * PAGE, 320), evict(p, 16 * PAGE);
    char *q = moved(p, 0, 16, MREMAP_MAYMOVE, NULL);
    CHECK(q != p);
    check(q, 16 * PAGE, 320), check(p, 16 * PAGE, 320);
    fill(q + 4 * PAGE, 4 * PAGE, 321), check(p + 4 * PAGE, 4 * PAGE, 321);
    fill(p, 4 * PAGE, 322), check(q, 4 * PAGE, 322);
    OK(munmap(p, 16 * PAGE));
    check(q, 4 * PAGE, 322), check(q + 4 * PAGE, 4 * PAGE, 321), check_from(q + 8 * PAGE, 8 * PAGE, 320, 8 * PAGE);
    OK(munmap(q, 16 * PAGE));
    /* Moved as it is, and a part of it. */
    p = shared(16);
    fill(p, 16 * PAGE, 323), evict(p, 8 * PAGE);
    char *to = shared(16);
    q = moved(p, 16, 16, MREMAP_MAYMOVE, NULL);
    check(q, 16 * PAGE, 323);
    char *part = moved(q + 4 * PAGE, 4, 4, MREMAP_MAYMOVE, NULL);
    check_from(part, 4 * PAGE, 323, 4 * PAGE);
    OK(munmap(to, 16 * PAGE)), OK(munmap(q, 16 * PAGE));
    if (part < q || part >= q + 16 * PAGE) OK(munmap(part, 4 * PAGE));
    /* What was cut off comes back: it is the object's. */
    p = shared(16);
    fill(p, 16 * PAGE, 324), evict(p, 16 * PAGE);
    q = moved(p, 16, 4, 0, NULL);
    EQ(q, p);
    q = moved(p, 4, 16, MREMAP_MAYMOVE, NULL);
    check(q, 16 * PAGE, 324);
    OK(munmap(q + 8 * PAGE, 8 * PAGE));
    q = moved(q, 8, 16, MREMAP_MAYMOVE, NULL);
    check(q, 16 * PAGE, 324);
    OK(munmap(q, 16 * PAGE));
    p = shared(16);
    fill(p, 16 * PAGE, 325), evict(p, 16 * PAGE);
    OK(munmap(p + 8 * PAGE, 8 * PAGE));
    q = moved(p, 8, 16, MREMAP_MAYMOVE, NULL);
    check(q, 16 * PAGE, 325);
    OK(munmap(q, 16 * PAGE));
    /* The same where nothing was written there. */
    p = shared(16);
    fill(p, 8 * PAGE, 326), evict(p, 8 * PAGE);
    OK(munmap(p + 8 * PAGE, 8 * PAGE));
    q = moved(p, 8, 16, MREMAP_MAYMOVE, NULL);
    check(q, 8 * PAGE, 326), check_zero(q + 8 * PAGE, 8 * PAGE);
    OK(munmap(q, 16 * PAGE));
    /* Pages of a mapping in another order. */
    p = shared(8);
    fill(p, 8 * PAGE, 327), evict(p, 8 * PAGE);
    if (remap_file_pages(p, 2 * PAGE, 0, 4, 0) == 0) {
        check_from(p, 2 * PAGE, 327, 4 * PAGE);
        p[0] ^= 1;
        EQ(p[4 * PAGE], p[0]);
    } else if (errno == ENOSYS) {
        check(p, 2 * PAGE, 327);
    } else {
        die("remap_file_pages: errno %d", errno);
    }
    OK(munmap(p, 8 * PAGE));
}

/* One range with shared and private memory, and with mappings over others. */
static void mixed(void) {
    char *p = fresh(48);
    fill(p, 48 * PAGE, 330), evict(p, 48 * PAGE);
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(p + 8 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == p + 8 * PAGE);
    CHECK(mmap(p + 16 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == p + 16 * PAGE);
    check_zero(p + 8 * PAGE, 16 * PAGE);
    fill(p + 8 * PAGE, 16 * PAGE, 331), evict(p, 48 * PAGE);
    check(p, 8 * PAGE, 330), check(p + 8 * PAGE, 16 * PAGE, 331), check_from(p + 24 * PAGE, 24 * PAGE, 330, 24 * PAGE);
    /* These are two mappings. */
    EQ(mremap(p + 8 * PAGE, 16 * PAGE, 17 * PAGE, MREMAP_MAYMOVE), MAP_FAILED), EQ(errno, EFAULT);
    /* Private memory over a part of one. */
    CHECK(mmap(p + 12 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
          == p + 12 * PAGE);
    check_zero(p + 12 * PAGE, 2 * PAGE);
    fill(p + 12 * PAGE, 2 * PAGE, 332), evict_some(p, 48 * PAGE);
    check(p + 8 * PAGE, 4 * PAGE, 331), check(p + 12 * PAGE, 2 * PAGE, 332);
    check_from(p + 14 * PAGE, 10 * PAGE, 331, 6 * PAGE);
    OK(madvise(p, 48 * PAGE, MADV_DONTNEED));
    check_zero(p, 8 * PAGE), check(p + 8 * PAGE, 4 * PAGE, 331), check_zero(p + 12 * PAGE, 2 * PAGE);
    check_from(p + 14 * PAGE, 10 * PAGE, 331, 6 * PAGE), check_zero(p + 24 * PAGE, 24 * PAGE);
    expect_exit(CHILD(fill(p, 48 * PAGE, 333)), 0);
    check_zero(p, 8 * PAGE), check_from(p + 8 * PAGE, 4 * PAGE, 333, 8 * PAGE), check_zero(p + 12 * PAGE, 2 * PAGE);
    check_from(p + 14 * PAGE, 10 * PAGE, 333, 14 * PAGE), check_zero(p + 24 * PAGE, 24 * PAGE);
    OK(munmap(p, 48 * PAGE));
}

/* Shared memory is no data. */
static void limits(void) {
    struct rlimit old, small;
    OK(getrlimit(RLIMIT_DATA, &old));
    small = old, small.rlim_cur = 64 * MIB;
    OK(setrlimit(RLIMIT_DATA, &small));
    char *p = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    expect_errno(mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    char *q = fresh(256);
    OK(munmap(q, 256 * PAGE)), OK(munmap(p, 256 * MIB));
    OK(setrlimit(RLIMIT_DATA, &old));
}

static void test(void) {
    plain();
    large();
    advice();
    remap();
    mixed();
    limits();
}
BOTH_WAYS(test)
