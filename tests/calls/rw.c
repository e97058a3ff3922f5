/* read and write: whole pages, odd offsets, every kind of neighbour, and what short transfers must look like. */
#include "common.h"

static char static_data[3 * PAGE];

static void test(void) {
    size_t n = 20 * PAGE + 123;
    char *from = fresh(24), *to = fresh(24);
    fill(from + 77, n, 3);
    evict(from, 24 * PAGE);
    int fd = open("file", O_CREAT | O_TRUNC | O_RDWR, 0644);
    CHECK(fd >= 0);
    EQ(CALL(write, fd, from + 77, n), n);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, to + 1001, n), n);
    check(to + 1001, n, 3);
    check_zero(to, 1001);
    check(from + 77, n, 3);

    /* Bytes around an evicted target keep their content. */
    fill(to, 24 * PAGE, 4);
    evict(to, 24 * PAGE);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, to + PAGE - 10, 2 * PAGE), 2 * PAGE);
    check(to, PAGE - 10, 4);
    check(to + PAGE - 10, 2 * PAGE, 3);
    check_from(to + 3 * PAGE - 10, PAGE, 4, 3 * PAGE - 10);

    /* At the end of the file, and for no bytes at all, no address is looked at. */
    EQ(lseek(fd, 0, SEEK_END), n);
    EQ(CALL(read, fd, bad_in()[1], 10), 0);
    EQ(CALL(read, fd, bad_in()[1], 0), 0);
    EQ(CALL(write, fd, bad_in()[2], 0), 0);

    /* Good memory followed by none: what fits is transferred. */
    char *short_ = guarded(2);
    fill(short_, 2 * PAGE, 5);
    evict(short_, 2 * PAGE);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, short_, 4 * PAGE), 2 * PAGE);
    check(short_, 2 * PAGE, 3);
    OK(ftruncate(fd, 0));
    EQ(lseek(fd, 0, SEEK_SET), 0);
    evict(short_, 2 * PAGE);
    EQ(CALL(write, fd, short_, 4 * PAGE), 2 * PAGE);
    EQ(lseek(fd, 0, SEEK_CUR), 2 * PAGE);
    char *none = fresh(4);
    fill(none, 4 * PAGE, 6);
    evict(none, 4 * PAGE);
    OK(mprotect(none + 2 * PAGE, PAGE, PROT_NONE));
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(write, fd, none, 4 * PAGE), 2 * PAGE);
    OK(mprotect(none + 2 * PAGE, PAGE, PROT_READ));
    evict(none, 4 * PAGE);
    EQ(CALL(write, fd, none + 2 * PAGE, 2 * PAGE), 2 * PAGE);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, to, 8 * PAGE), 4 * PAGE);
    check(to, 4 * PAGE, 6);

    /* One range over anonymous, file, shared and anonymous pages. */
    make_file("mapped", PAGE, 9);
    int mapped = open("mapped", O_RDWR);
    char *mixed = fresh(5);
    fill(mixed, 5 * PAGE, 7);
    evict(mixed, 5 * PAGE);
    CHECK(mmap(mixed + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, mapped, 0) == mixed + PAGE);
    CHECK(mmap(mixed + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          mixed + 2 * PAGE);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(write, fd, mixed, 5 * PAGE), 5 * PAGE);
    EQ(pread(fd, to, 5 * PAGE, 0), 5 * PAGE);
    check(to, PAGE, 7);
    check(to + PAGE, PAGE, 9);
    check_zero(to + 2 * PAGE, PAGE);
    check_from(to + 3 * PAGE, 2 * PAGE, 7, 3 * PAGE);
    fill(to, 5 * PAGE, 10);
    EQ(pwrite(fd, to, 5 * PAGE, 0), 5 * PAGE);
    evict(mixed, 5 * PAGE);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, mixed, 5 * PAGE), 5 * PAGE);
    check(mixed, 5 * PAGE, 10);

    /* Static data and the stack. */
    char stack[3 * PAGE];
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, static_data, sizeof static_data), sizeof static_data);
    check(static_data, sizeof static_data, 10);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(read, fd, stack, sizeof stack), sizeof stack);
    check(stack, sizeof stack, 10);

    /* The heap. */
    char *small = heap(100), *large = heap(3 << 20);
    fill(large, 3 << 20, 11);
    fill(small, 100, 12);
    evict(large, 3 << 20);
    evict(small, 100);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EQ(CALL(write, fd, large, 3 << 20), 3 << 20);
    EQ(CALL(write, fd, small, 100), 100);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    memset(large, 0, 3 << 20);
    evict(large, 3 << 20);
    EQ(CALL(read, fd, large, 3 << 20), 3 << 20);
    check(large, 3 << 20, 11);
    EQ(CALL(read, fd, large + 5, 2 << 20), 100);
    check(large + 5, 100, 12);
    free(small), free(large);

    EQ(lseek(fd, 0, SEEK_SET), 0);
    EFAULT_OUT(p, CALL(read, fd, p, 100));
    EQ(lseek(fd, 0, SEEK_CUR), 0);
    EFAULT_IN(p, CALL(write, fd, p, 100));
    evict(to, PAGE);
    expect_errno(CALL(read, -1, to, 10), EBADF);
    expect_errno(CALL(read, -1, bad_in()[1], 10), EBADF);
    expect_errno(CALL(write, -1, to, 10), EBADF);
    int only = open("file", O_WRONLY);
    expect_errno(CALL(read, only, to, 10), EBADF);
    int dir = open(".", O_RDONLY);
    expect_errno(CALL(read, dir, to, 10), EISDIR);
    int pipes[2];
    OK(pipe2(pipes, O_NONBLOCK));
    expect_errno(CALL(read, pipes[0], bad_in()[1], 10), EAGAIN);
    expect_errno(CALL(read, pipes[0], to, 10), EAGAIN);
    EQ(CALL(write, pipes[1], to, 10), 10);
    EFAULT_OUT(p, CALL(read, pipes[0], p, 10));
    EQ(CALL(read, pipes[0], place(10, 1), 10), 10);
    close(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    evict(to, PAGE);
    expect_errno(CALL(write, pipes[1], to, 10), EPIPE);
    close(pipes[1]), close(fd), close(mapped), close(only), close(dir);
    munmap(from, 24 * PAGE), munmap(to, 24 * PAGE), munmap(mixed, 5 * PAGE), munmap(none, 4 * PAGE);
}
BOTH_WAYS(test)
