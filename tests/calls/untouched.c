/* Fresh memory of which little was touched: what calls, children and other threads find there, and what happens to it when memory runs
 * short. */
#include "common.h"

enum { PAGES = 1024, STEP = 37 };

/* Every STEP-th page from the first on is touched. */
static char *sparse(unsigned seed) {
    char *p = fresh(PAGES);
    for (size_t i = 0; i < PAGES; i += STEP) fill(p + i * PAGE, PAGE, seed + i);
    return p;
}
static void check_sparse(const char *p, size_t from, size_t to, unsigned seed) {
    for (size_t i = from; i < to; i++) {
        if (i % STEP == 0)
            check(p + i * PAGE, PAGE, seed + i);
        else
            check_zero(p + i * PAGE, PAGE);
    }
}
static size_t are_there(const char *p, size_t from, size_t to) {
    static unsigned char flags[PAGES];
    OK(CALL(mincore, (void *)(p + from * PAGE), (to - from) * PAGE, flags));
    size_t there = 0;
    for (size_t i = 0; i < to - from; i++) there += flags[i] & 1;
    return there;
}

/* A call writes to memory that nobody has touched, while other memory is needed. */
struct reading {
    int fd;
    char *to;
};
static void *reads(void *at) {
    struct reading *r = at;
    for (size_t done = 0; done < 64 * PAGE;) {
        ssize_t n = read(r->fd, r->to + done, 64 * PAGE - done);
        CHECK(n > 0);
        done += n;
    }
    return NULL;
}
static void while_a_call_waits(void) {
    int ends[2];
    OK(pipe(ends));
    char *p = sparse(1);
    struct reading r = {ends[0], p + 100 * PAGE + 11};
    pthread_t thread;
    OK(pthread_create(&thread, NULL, reads, &r));
    char *source = heap(64 * PAGE);
    fill(source, 64 * PAGE, 5);
    for (size_t done = 0; done < 64 * PAGE;) {
        sleep_ms(1), pressure(24), evict_some(p, PAGES * PAGE);
        ssize_t n = write(ends[1], source + done, 64 * PAGE - done < 5000 ? 64 * PAGE - done : 5000);
        CHECK(n > 0);
        done += n;
    }
    OK(pthread_join(thread, NULL));
    check(r.to, 64 * PAGE, 5);
    check_sparse(p, 0, 100, 1), check_sparse(p, 166, PAGES, 1);
    OK(close(ends[0])), OK(close(ends[1])), OK(munmap(p, PAGES * PAGE));
    free(source);
}

/* Each of these threads touches pages of its own, all over memory that they share, as it runs short. */
static char *shared;
static void *touches(void *number) {
    size_t me = (size_t)number;
    for (size_t n = 0; n < PAGES / 4; n++) fill(shared + (n * 263 % (PAGES / 4) * 4 + me) * PAGE, 16, me);
    return NULL;
}
static void check_shared(void) {
    for (size_t i = 0; i < PAGES; i++) check(shared + i * PAGE, 16, i % 4), check_zero(shared + i * PAGE + 16, PAGE - 16);
}
static void by_several_threads(void) {
    shared = fresh(PAGES);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) OK(pthread_create(&threads[i], NULL, touches, (void *)i));
    pressure(24), evict_some(shared, PAGES * PAGE);
    for (size_t i = 0; i < 4; i++) OK(pthread_join(threads[i], NULL));
    check_shared(), evict(shared, PAGES * PAGE), check_shared();
    OK(munmap(shared, PAGES * PAGE));
}

/* What was only read is there for a child, too, and for its calls. */
static void only_read(void) {
    char *p = fresh(PAGES);
    for (size_t i = 0; i < PAGES; i += STEP) check_zero(p + i * PAGE, PAGE);
    int ends[2], status;
    OK(pipe(ends));
    pid_t pid = CHILD(EQ(write(ends[1], p + STEP * PAGE, PAGE), PAGE), check_zero(p, 100 * PAGE), fill(p, PAGES * PAGE, 3),
                      check(p, PAGES * PAGE, 3), evict_some(p, PAGES * PAGE), check(p, PAGES * PAGE, 3));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    check_zero(p, PAGES * PAGE), OK(close(ends[0])), OK(close(ends[1])), OK(munmap(p, PAGES * PAGE));
}

static void test(void) {
    only_read();
    char *p = sparse(7);
    CHECK(are_there(p, 0, PAGES) >= (PAGES + STEP - 1) / STEP);
    evict(p, PAGES * PAGE), check_sparse(p, 0, PAGES, 7);
    OK(munmap(p, PAGES * PAGE));
    /* What is not there is brought in where a call asks for it, and nowhere else. */
    p = sparse(8);
    OK(CALL(madvise, p + 256 * PAGE, 64 * PAGE, MADV_POPULATE_WRITE)), EQ(are_there(p, 256, 320), 64);
    OK(CALL(madvise, p + 320 * PAGE, 64 * PAGE, MADV_POPULATE_READ)), EQ(are_there(p, 320, 384), 64);
    OK(CALL(mlock, p + 512 * PAGE, 8 * PAGE)), EQ(are_there(p, 512, 520), 8);
    OK(CALL(munlock, p + 512 * PAGE, 8 * PAGE));
    char *q = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(q != MAP_FAILED), EQ(are_there(q, 0, 64), 64), OK(munmap(q, 64 * PAGE));
    check_sparse(p, 0, PAGES, 8);
    /* Taken away and mapped anew, or dropped, it is zeros. */
    OK(CALL(munmap, p + 100 * PAGE, 100 * PAGE));
    CHECK(mmap(p + 100 * PAGE, 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 100 * PAGE);
    check_zero(p + 100 * PAGE, 100 * PAGE), check_sparse(p, 0, 100, 8), check_sparse(p, 200, PAGES, 8);
    OK(CALL(madvise, p + 200 * PAGE, 100 * PAGE, MADV_DONTNEED));
    check_zero(p + 100 * PAGE, 200 * PAGE), check_sparse(p, 300, PAGES, 8);
    /* With less access, and with all again. */
    OK(CALL(mprotect, p + 300 * PAGE, 200 * PAGE, PROT_READ)), check_sparse(p, 300, PAGES, 8);
    OK(CALL(mprotect, p + 300 * PAGE, 200 * PAGE, PROT_NONE)), pressure(24);
    OK(CALL(mprotect, p + 300 * PAGE, 200 * PAGE, PROT_READ | PROT_WRITE)), check_sparse(p, 300, PAGES, 8);
    OK(munmap(p, PAGES * PAGE));
    /* It moves with its holes. */
    p = sparse(9), q = fresh(PAGES);
    CHECK(mremap(p, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
    check_sparse(q, 0, PAGES, 9), evict(q, PAGES * PAGE), check_sparse(q, 0, PAGES, 9);
    OK(munmap(q, PAGES * PAGE));
    /* A child has the same, and what one writes the other has not. */
    p = sparse(10);
    pid_t pid = CHILD(check_sparse(p, 0, PAGES, 10), fill(p + 5 * PAGE, PAGE, 3), pressure(24), check(p + 5 * PAGE, PAGE, 3),
                      check_sparse(p, 6, PAGES, 10), evict_some(p, PAGES * PAGE), check_sparse(p, 6, PAGES, 10));
    fill(p + 6 * PAGE, PAGE, 4);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    check_zero(p + 5 * PAGE, PAGE), check(p + 6 * PAGE, PAGE, 4), check_sparse(p, 7, PAGES, 10);
    evict(p, PAGES * PAGE), check_sparse(p, 7, PAGES, 10);
    OK(munmap(p, PAGES * PAGE));
    while_a_call_waits();
    by_several_threads();
}
BOTH_WAYS(test)
