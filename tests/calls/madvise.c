/* madvise: what drops content drops it, what hints keeps it, and the errors. */
#include "faults.h"

static void test(void) {
    catch_faults();
    char *p = fresh(64);
    fill(p, 64 * PAGE, 200), evict(p, 64 * PAGE);
    OK(CALL(madvise, p + 8 * PAGE, 8 * PAGE, MADV_DONTNEED));
    check(p, 8 * PAGE, 200), check_zero(p + 8 * PAGE, 8 * PAGE), check_from(p + 16 * PAGE, 48 * PAGE, 200, 16 * PAGE);
    /* In memory too, and with a length that is rounded up. */
    fill(p, 64 * PAGE, 200);
    OK(CALL(madvise, p, PAGE + 1, MADV_DONTNEED)), check_zero(p, 2 * PAGE),
        check_from(p + 2 * PAGE, PAGE, 200, 2 * PAGE);
    static const int hints[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT,
                                MADV_WILLNEED, MADV_DONTFORK, MADV_DOFORK, MADV_DONTDUMP, MADV_DODUMP,
                                MADV_POPULATE_READ, MADV_PAGEOUT, MADV_POPULATE_WRITE};
    fill(p, 64 * PAGE, 201);
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        OK(CALL(madvise, p + PAGE, 60 * PAGE, hints[i]));
        check(p, 64 * PAGE, 201);
    }
    /* What was hinted to be cold goes like all else. */
    fill(p, 64 * PAGE, 201), OK(CALL(madvise, p, 64 * PAGE, MADV_COLD)), evict(p + PAGE, 60 * PAGE), check(p, 64 * PAGE, 201);
    /* After MADV_FREE a page has its old content or none, until it is written. */
    evict(p, 32 * PAGE);
    OK(CALL(madvise, p, 64 * PAGE, MADV_FREE));
    for (int i = 0; i < 64; i++) {
        if (p[i * PAGE + 1] == 0)
            check_zero(p + i * PAGE, PAGE);
        else
            check_from(p + i * PAGE, PAGE, 201, i * PAGE);
    }
    fill(p, 64 * PAGE, 202);
    OK(CALL(madvise, p, 64 * PAGE, MADV_FREE));
    fill(p, 64 * PAGE, 203), evict(p, 64 * PAGE), pressure(4), check(p, 64 * PAGE, 203);
    /* Over memory of other kinds. */
    make_file("f", 4 * PAGE, 204);
    int fd = open("f", O_RDWR);
    CHECK(mmap(p + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED);
    fill(p + 4 * PAGE, 4 * PAGE, 205), evict(p, 64 * PAGE);
    OK(CALL(madvise, p, 16 * PAGE, MADV_DONTNEED));
    check_zero(p, 4 * PAGE), check(p + 4 * PAGE, 4 * PAGE, 204), check_zero(p + 8 * PAGE, 8 * PAGE);
    /* What a child gets. */
    fill(p + 16 * PAGE, 8 * PAGE, 206), evict(p, 64 * PAGE);
    OK(CALL(madvise, p + 16 * PAGE, 2 * PAGE, MADV_WIPEONFORK)),
        OK(CALL(madvise, p + 20 * PAGE, 2 * PAGE, MADV_DONTFORK));
    pid_t pid = fork();
    if (!pid) {
        check_zero(p + 16 * PAGE, 2 * PAGE), check_from(p + 18 * PAGE, 2 * PAGE, 206, 2 * PAGE);
        FAULTS_WITH(p + 20 * PAGE, 0, SEGV_MAPERR);
        check_from(p + 22 * PAGE, 2 * PAGE, 206, 6 * PAGE);
        _exit(0);
    }
    expect_exit(pid, 0), check(p + 16 * PAGE, 8 * PAGE, 206);

    expect_errno(CALL(madvise, p + 1, PAGE, MADV_DONTNEED), EINVAL);
    expect_errno(CALL(madvise, p, PAGE, 12345), EINVAL);
    expect_errno(CALL(madvise, p + 30 * PAGE, PAGE, MADV_REMOVE), EINVAL);
    OK(CALL(madvise, p, 0L, MADV_DONTNEED));
    /* A hole: all that is mapped is done, then the error. */
    fill(p + 32 * PAGE, 32 * PAGE, 207), evict(p + 32 * PAGE, 32 * PAGE);
    OK(munmap(p + 40 * PAGE, 4 * PAGE));
    expect_errno(CALL(madvise, p + 36 * PAGE, 12 * PAGE, MADV_DONTNEED), ENOMEM);
    check(p + 32 * PAGE, 4 * PAGE, 207), check_zero(p + 36 * PAGE, 4 * PAGE), check_zero(p + 44 * PAGE, 4 * PAGE);
    check_from(p + 48 * PAGE, PAGE, 207, 16 * PAGE);
    expect_errno(CALL(madvise, bad_in()[1], PAGE, MADV_DONTNEED), ENOMEM);
    expect_errno(CALL(madvise, bad_in()[1], PAGE, MADV_PAGEOUT), ENOMEM);
    close(fd), munmap(p, 64 * PAGE);
}
BOTH_WAYS(test)
