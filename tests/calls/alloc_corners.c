/* Corners of allocation and of mappings where programs rely on what the C library and Linux do. */
#include "common.h"
#include <malloc.h>

static void *volatile hidden;
static void *opaque(void *p) {
    hidden = p;
    return hidden;
}
static void alignments(void) {
    volatile size_t odd[] = {1, 3, 7, 24, 48, 100, 1000, 3000, 5000};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char *p = memalign(odd[i], 100);
        CHECK(p && malloc_usable_size(p) >= 100);
        memset(p, 3, 100);
        /* Rounded up to a power of two. */
        size_t want = 1;
        while (want < odd[i]) want *= 2;
        EQ((uintptr_t)p % want, 0);
        free(p);
        p = aligned_alloc(odd[i], odd[i] * 2);
        /* From the C library 2.38 on only for powers of two. */
        CHECK(p || (want != odd[i] && !libc_before(38)));
        if (p) memset(p, 3, odd[i] * 2);
        EQ((uintptr_t)p % want, 0);
        free(p);
        void *q = &q;
        int power = (odd[i] & (odd[i] - 1)) == 0 && odd[i] >= sizeof(void *);
        EQ(posix_memalign(&q, odd[i], 50), power ? 0 : EINVAL);
        if (power) free(q);
    }
    char *p = memalign(0, 10);
    CHECK(p), free(p);
    void *q;
    EQ(posix_memalign(&q, 0, 10), EINVAL), EQ(posix_memalign(&q, 4, 10), EINVAL), EQ(posix_memalign(&q, 24, 10), EINVAL);
    OK(posix_memalign(&q, 4096, 10)), EQ((uintptr_t)q % 4096, 0), free(q);
    p = valloc(10), CHECK(p), EQ((uintptr_t)p % PAGE, 0), free(p);
    p = pvalloc(10), CHECK(p), EQ((uintptr_t)p % PAGE, 0), CHECK(malloc_usable_size(p) >= PAGE), free(p);
}
static void sizes(void) {
    volatile size_t zero = 0, most = PTRDIFF_MAX;
    /* Frees, and gives nothing. */
    void *p = opaque(malloc(10));
    CHECK(!realloc(p, zero));
    p = opaque(malloc(5 << 20));
    CHECK(!realloc(p, zero));
    p = realloc(NULL, zero), CHECK(p), free(p);
    p = malloc(zero), CHECK(p), free(p);
    p = calloc(zero, 8), CHECK(p), free(p);
    errno = 0, CHECK(!malloc(most + 1)), EQ(errno, ENOMEM);
    errno = 0, CHECK(!calloc(most, 3)), EQ(errno, ENOMEM);
    errno = 0, CHECK(!reallocarray(NULL, most, 3)), EQ(errno, ENOMEM);
    errno = 0, CHECK(!aligned_alloc(64, most + 1)), EQ(errno, ENOMEM);
    char *q = heap(100);
    fill(q, 100, 5);
    errno = 0, CHECK(!realloc(opaque(q), most + 1)), EQ(errno, ENOMEM), check(q, 100, 5);
    q = realloc(opaque(q), 3 << 20), CHECK(q), check(q, 100, 5);
    evict(q, 3 << 20), q = realloc(opaque(q), 50), CHECK(q), check(q, 50, 5);
    errno = 7, free(q), EQ(errno, 7);
}
static void mappings(void) {
    /* Far more than there is room for, none of it touched: locked as it comes. */
    size_t n = 1UL << 30;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, now;
    if (geteuid() == 0 && setrlimit(RLIMIT_MEMLOCK, &all) == 0) {
        OK(getrlimit(RLIMIT_MEMLOCK, &now));
        OK(syscall(SYS_mlock2, p, n, MLOCK_ONFAULT));
        for (size_t i = 0; i < 100; i++) p[i * (n / 100)] = i;
        for (size_t i = 0; i < 100; i++) EQ(p[i * (n / 100)], i);
        OK(munlock(p, n));
    }
    OK(munmap(p, n));
    /* A mapping in which an alternate stack was, and one in which it is, can be moved. */
    for (int in_use = 0; in_use < 2; in_use++) {
        p = fresh(256);
        fill(p, 256 * PAGE, 4);
        stack_t s = {.ss_sp = p + 64 * PAGE, .ss_size = 16 * PAGE}, none = {.ss_flags = SS_DISABLE}, old;
        OK(sigaltstack(&s, NULL));
        if (!in_use) OK(sigaltstack(&none, NULL));
        evict(p, 256 * PAGE);
        char *q = mremap(p, 256 * PAGE, 512 * PAGE, MREMAP_MAYMOVE);
        CHECK(q != MAP_FAILED);
        check(q, 256 * PAGE, 4), check_zero(q + 256 * PAGE, 256 * PAGE);
        OK(sigaltstack(NULL, &old)), EQ(old.ss_flags, in_use ? 0 : SS_DISABLE);
        OK(sigaltstack(&none, NULL));
        OK(madvise(q, 512 * PAGE, MADV_DONTNEED)), check_zero(q, 512 * PAGE);
        OK(munmap(q, 512 * PAGE));
    }
    p = mmap(NULL, 1UL << 42, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    OK(mprotect(p + (1UL << 41), 4 * PAGE, PROT_READ | PROT_WRITE));
    fill(p + (1UL << 41), 4 * PAGE, 8), evict(p + (1UL << 41), 4 * PAGE), check(p + (1UL << 41), 4 * PAGE, 8);
    OK(munmap(p, 1UL << 42));
}
int main(void) {
    tmpdir();
    alignments(), sizes(), mappings();
    puts("ok");
    return 0;
}
