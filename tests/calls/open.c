/* open, openat, openat2, creat: evicted paths, and bad ones. */
#include "common.h"
#include <linux/openat2.h>

static void test(void) {
    make_file("here", 10, 1);
    char *name = str("here"), *other = str("made");
    int fd = CALL(open, name, O_RDONLY);
    CHECK(fd >= 0);
    OK(close(fd));
    evict(name, 5);
    fd = CALL(openat, AT_FDCWD, name, O_RDONLY);
    CHECK(fd >= 0);
    OK(close(fd));
    int dir = open(".", O_PATH);
    evict(name, 5);
    fd = CALL(openat, dir, name, O_RDONLY);
    CHECK(fd >= 0);
    OK(close(fd));
    fd = CALL(creat, other, 0640);
    CHECK(fd >= 0);
    EQ(write(fd, "x", 1), 1);
    OK(close(fd));
    expect_errno(CALL(open, str("made"), O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    struct open_how *how = ARG(struct open_how, .flags = O_RDONLY);
    evict(name, 5);
    fd = syscall(SYS_openat2, AT_FDCWD, name, how, sizeof *how);
    CHECK(fd >= 0);
    OK(close(fd));
    /* A longer one, whose zeros lie in the next page. */
    char *longer = fresh(2);
    memset(longer, 0, 2 * PAGE), *(struct open_how *)(longer + PAGE - sizeof *how) = *how;
    evict(longer, 2 * PAGE);
    fd = syscall(SYS_openat2, AT_FDCWD, name, longer + PAGE - sizeof *how, 64);
    CHECK(fd >= 0);
    OK(close(fd));
    EFAULT_IN(p, syscall(SYS_openat2, AT_FDCWD, name, p, sizeof *how));
    EFAULT_EDGE(p, syscall(SYS_openat2, AT_FDCWD, name, p, sizeof *how));
    EFAULT_IN(p, syscall(SYS_openat2, AT_FDCWD, p, how, sizeof *how));

    EFAULT_IN(p, CALL(open, p, O_RDONLY));
    EFAULT_IN(p, CALL(openat, AT_FDCWD, p, O_RDONLY));
    EFAULT_IN(p, CALL(creat, p, 0600));
    EFAULT_EDGE(p, CALL(open, p, O_RDONLY));
    EFAULT_EDGE(p, CALL(openat, dir, p, O_RDONLY));
    EFAULT_EDGE(p, CALL(creat, p, 0600));
    expect_errno(CALL(open, str("absent"), O_RDONLY), ENOENT);
    expect_errno(CALL(open, str(""), O_RDONLY), ENOENT);
    expect_errno(CALL(openat, -1, str("here"), O_RDONLY), EBADF);
    expect_errno(CALL(open, str("here/below"), O_RDONLY), ENOTDIR);

    /* A path that just fits, and one that does not, over two pages. */
    char *full = place(2 * PAGE, 1);
    memset(full, '/', 2 * PAGE);
    strcpy(full + PATH_MAX - 5, "here");
    memcpy(full, "./", 2);
    evict(full, 2 * PAGE);
    fd = CALL(open, full, O_RDONLY);
    CHECK(fd >= 0);
    OK(close(fd));
    memset(full, 'a', 2 * PAGE);
    evict(full, 2 * PAGE);
    expect_errno(CALL(open, full, O_RDONLY), ENAMETOOLONG);
    /* A string that ends on the last byte before a hole is whole. */
    char *g = guarded(1);
    strcpy(g + PAGE - 5, "here");
    evict(g, PAGE);
    fd = CALL(open, g + PAGE - 5, O_RDONLY);
    CHECK(fd >= 0);
    OK(close(fd));
    OK(close(dir)), OK(unlink("made")), OK(munmap(g, PAGE));

    /* The stream functions go through libc's own inner calls. */
    FILE *f = fopen(str("stream"), str("w+"));
    CHECK(f);
    char *text = heap(100000);
    memset(text, 'q', 99999), text[99999] = 0;
    evict(text, 100000);
    CHECK(fputs(text, f) >= 0);
    rewind(f);
    char *line = heap(100001);
    evict(line, 100001);
    CHECK(fgets(line, 100001, f) == line);
    OK(strcmp(line, text));
    OK(fclose(f)), free(text), free(line);
}
BOTH_WAYS(test)
