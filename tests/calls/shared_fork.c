/* Shared anonymous memory at a fork, in all states that it can be in: parent and child have the same from then on. */
#include "common.h"

static char *shared(size_t pages) {
    char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("cannot map %zu shared pages: errno %d", pages, errno);
    return p;
}
/* 0: fork, 1: clone, 2: clone that waits. */
static pid_t forked(int way) {
    if (way == 0) return raw_mode ? syscall(SYS_fork) : fork();
    return syscall(SYS_clone, (way == 2 ? CLONE_VFORK : 0) | SIGCHLD, 0, 0, 0, 0);
}
static void each_way(int way) {
    enum { N = 96 };
    char *p = shared(N), *read_only = shared(8), *hidden = shared(8), *empty = shared(2000), *locked = shared(4);
    fill(p, N * PAGE, 400), fill(read_only, 8 * PAGE, 401), fill(hidden, 8 * PAGE, 402), fill(locked, 4 * PAGE, 403);
    OK(mlock(locked, 4 * PAGE));
    /* Out of memory, in memory, both in turns, never touched; with holes. */
    evict(p, 32 * PAGE), evict(read_only, 8 * PAGE), evict(hidden, 8 * PAGE);
    for (int i = 33; i < 64; i += 2) evict(p + i * PAGE, PAGE);
    OK(mprotect(read_only, 8 * PAGE, PROT_READ)), OK(mprotect(hidden, 8 * PAGE, PROT_NONE));
    OK(munmap(p + 70 * PAGE, 4 * PAGE));
    char *own = fresh(16);
    fill(own, 16 * PAGE, 404), evict(own, 8 * PAGE);
    pid_t child = forked(way);
    CHECK(child >= 0);
    if (child == 0) {
        check(p, 70 * PAGE, 400), check_from(p + 74 * PAGE, 22 * PAGE, 400, 74 * PAGE);
        check(read_only, 8 * PAGE, 401), check(locked, 4 * PAGE, 403), check_zero(empty, 2000 * PAGE);
        OK(mprotect(hidden, 8 * PAGE, PROT_READ | PROT_WRITE)), check(hidden, 8 * PAGE, 402);
        fill(p, 70 * PAGE, 410), fill(hidden, 8 * PAGE, 411), fill(empty + 1000 * PAGE, 10 * PAGE, 412);
        fill(locked, 4 * PAGE, 413);
        check(own, 16 * PAGE, 404), fill(own, 16 * PAGE, 414);
        /* What a child maps is managed, until it forks. */
        char *new = shared(16);
        fill(new, 16 * PAGE, 415), evict(new, 16 * PAGE);
        expect_exit(CHILD(check(new, 16 * PAGE, 415); fill(new, 16 * PAGE, 416); fill(p, PAGE, 417)), 0);
        check(new, 16 * PAGE, 416);
        _exit(0);
    }
    expect_exit(child, 0);
    check(p, PAGE, 417), check_from(p + PAGE, 69 * PAGE, 410, PAGE), check_from(p + 74 * PAGE, 22 * PAGE, 400, 74 * PAGE);
    unsigned char in;
    expect_errno(mincore(p + 71 * PAGE, PAGE, &in), ENOMEM);
    check(read_only, 8 * PAGE, 401), check(empty + 1000 * PAGE, 10 * PAGE, 412), check(locked, 4 * PAGE, 413);
    check_zero(empty, 1000 * PAGE), check_zero(empty + 1010 * PAGE, 990 * PAGE);
    OK(mprotect(hidden, 8 * PAGE, PROT_READ)), check(hidden, 8 * PAGE, 411);
    check(own, 16 * PAGE, 404);
    /* A second fork finds it as it is, and what came since. */
    char *late = shared(8);
    fill(late, 8 * PAGE, 418), evict(late, 8 * PAGE);
    expect_exit(CHILD(check(late, 8 * PAGE, 418); fill(late, 8 * PAGE, 419); fill(p, 8 * PAGE, 420)), 0);
    check(late, 8 * PAGE, 419), check(p, 8 * PAGE, 420);
    OK(munmap(p, N * PAGE)), OK(munmap(read_only, 8 * PAGE)), OK(munmap(hidden, 8 * PAGE)), OK(munmap(late, 8 * PAGE));
    OK(munmap(empty, 2000 * PAGE)), OK(munmap(locked, 4 * PAGE)), OK(munmap(own, 16 * PAGE));
}

/* A child that only borrows the memory until it executes a program. */
static void borrowed(void) {
    volatile char *p = shared(32);
    fill((char *)p, 32 * PAGE, 430), evict((char *)p, 32 * PAGE);
    pid_t child = vfork();
    if (child == 0) {
        char same = p[5 * PAGE] == (char)byte_at(430, 5 * PAGE);
        p[7 * PAGE] = same ? 1 : 2;
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    expect_exit(child, 0);
    EQ(p[7 * PAGE], 1);
    p[7 * PAGE] = byte_at(430, 7 * PAGE);
    evict((char *)p, 32 * PAGE), check((char *)p, 32 * PAGE, 430);
    OK(munmap((char *)p, 32 * PAGE));
}

/* More than there is memory for, shared with a child. */
static void large(void) {
    size_t pages = 40 * MIB / PAGE;
    char *p = shared(pages);
    for (size_t i = 0; i < pages; i++) fill_from(p + i * PAGE, 32, 440, i);
    pid_t child = CHILD({
        for (size_t i = 0; i < pages; i++) check_from(p + i * PAGE, 32, 440, i);
        for (size_t i = 0; i < pages; i += 2) fill_from(p + i * PAGE, 32, 441, i);
    });
    expect_exit(child, 0);
    for (size_t i = 0; i < pages; i++) check_from(p + i * PAGE, 32, i % 2 ? 440 : 441, i);
    OK(munmap(p, pages * PAGE));
}

/* Other threads write all the time: nothing of it is lost, and the child sees it go on. */
enum { WRITERS = 3, EACH = 24 };
static volatile uint64_t *volatile area;
static volatile int stop;
static uint64_t done[WRITERS];
static void *writer(void *arg) {
    long me = (long)arg;
    uint64_t n = 0;
    while (!stop) {
        n++;
        for (int i = 0; i < EACH; i++) {
            volatile uint64_t *word = area + (me * EACH + i) * (PAGE / 8) + me;
            if (*word != n - 1) die("writer %ld finds %lu, not %lu, in page %d", me, *word, n - 1, i);
            *word = n;
        }
    }
    done[me] = n;
    return NULL;
}
static void writers(void) {
    for (int round = 0; round < 6; round++) {
        char *p = shared(WRITERS * EACH);
        area = (volatile uint64_t *)p, stop = 0;
        pthread_t t[WRITERS];
        for (long i = 0; i < WRITERS; i++) OK(pthread_create(t + i, NULL, writer, (void *)i));
        for (int i = 0; i < 3; i++) usleep(2000), evict_some(p, WRITERS * EACH * PAGE);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* The parent goes on. */
            for (long me = 0; me < WRITERS; me++) {
                volatile uint64_t *word = area + me * EACH * (PAGE / 8) + me;
                uint64_t seen = *word;
                while (*word == seen) usleep(1000);
            }
            _exit(0);
        }
        expect_exit(child, 0);
        stop = 1;
        for (int i = 0; i < WRITERS; i++) OK(pthread_join(t[i], NULL));
        for (int me = 0; me < WRITERS; me++)
            for (int i = 0; i < EACH; i++) EQ(area[(me * EACH + i) * (PAGE / 8) + me], done[me]);
        OK(munmap(p, WRITERS * EACH * PAGE));
    }
}

/* A thread waits in the kernel with a buffer there, while another forks: what comes, comes for both. */
static int fds[2];
static void *reader(void *arg) {
    EQ(read(fds[0], arg, 3000), 3000);
    return NULL;
}
static void in_the_kernel(void) {
    OK(pipe(fds));
    char *p = shared(8);
    fill(p, 8 * PAGE, 450), evict(p, 8 * PAGE);
    pthread_t t;
    OK(pthread_create(&t, NULL, reader, p + 2 * PAGE + 100));
    usleep(50000);
    int go[2];
    OK(pipe(go));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char c;
        EQ(read(go[0], &c, 1), 1);
        check(p + 2 * PAGE + 100, 3000, 451);
        check(p, 2 * PAGE + 100, 450);
        _exit(0);
    }
    char bytes[3000];
    fill(bytes, 3000, 451);
    EQ(write(fds[1], bytes, 3000), 3000);
    OK(pthread_join(t, NULL));
    check(p + 2 * PAGE + 100, 3000, 451);
    EQ(write(go[1], "g", 1), 1);
    expect_exit(child, 0);
    OK(munmap(p, 8 * PAGE));
    for (int i = 0; i < 2; i++) OK(close(fds[i])), OK(close(go[i]));
}

static void test(void) {
    for (int way = 0; way < 3; way++) each_way(way);
    borrowed();
    large();
    writers();
    in_the_kernel();
}
BOTH_WAYS(test)
