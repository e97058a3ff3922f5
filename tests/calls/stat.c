/* stat, lstat, fstat, newfstatat, statx. */
#include "common.h"

static void same(const struct stat *got, const struct stat *want) {
    EQ(got->st_ino, want->st_ino), EQ(got->st_size, want->st_size), EQ(got->st_mode, want->st_mode);
    EQ(got->st_mtim.tv_nsec, want->st_mtim.tv_nsec), EQ(got->st_nlink, want->st_nlink);
}
static void test(void) {
    make_file("file", 4321, 1);
    unlink("link"), OK(symlink("file", "link"));
    struct stat file, link;
    OK(stat("file", &file)), OK(lstat("link", &link));
    EQ(file.st_size, 4321), CHECK(S_ISLNK(link.st_mode));
    int fd = open("file", O_RDONLY);
    for (int kind = 0; kind < 2; kind++) {
#define TARGET (kind ? OLD(struct stat) : OUT(struct stat))
        struct stat *s = TARGET;
        OK(CALL(stat, str("link"), s)), same(s, &file);
        s = TARGET;
        OK(CALL(lstat, str("link"), s)), same(s, &link);
        s = TARGET;
        OK(CALL(fstat, fd, s)), same(s, &file);
        s = TARGET;
        OK(EITHER(fstatat(AT_FDCWD, str("link"), s, AT_SYMLINK_NOFOLLOW),
                  syscall(SYS_newfstatat, AT_FDCWD, str("link"), s, AT_SYMLINK_NOFOLLOW)));
        same(s, &link);
        s = TARGET;
        OK(EITHER(fstatat(fd, str(""), s, AT_EMPTY_PATH), syscall(SYS_newfstatat, fd, str(""), s, AT_EMPTY_PATH)));
        same(s, &file);
        struct statx *x = kind ? OLD(struct statx) : OUT(struct statx);
        OK(CALL(statx, AT_FDCWD, str("file"), 0, STATX_BASIC_STATS, x));
        EQ(x->stx_ino, file.st_ino), EQ(x->stx_size, 4321), EQ(x->stx_mode, file.st_mode);
    }
    struct stat *s = OUT(struct stat);
    char *name = str("file");
    EFAULT_OUT(p, CALL(stat, name, p));
    EFAULT_OUT(p, CALL(lstat, name, p));
    EFAULT_OUT(p, CALL(fstat, fd, p));
    EFAULT_OUT(p, syscall(SYS_newfstatat, AT_FDCWD, name, p, 0));
    EFAULT_OUT(p, CALL(statx, AT_FDCWD, name, 0, STATX_BASIC_STATS, p));
    EFAULT_EDGE(p, CALL(stat, name, p));
    EFAULT_EDGE(p, CALL(fstat, fd, p));
    EFAULT_EDGE(p, CALL(statx, AT_FDCWD, name, 0, STATX_BASIC_STATS, p));
    EFAULT_IN(p, CALL(stat, p, s));
    EFAULT_IN(p, CALL(lstat, p, s));
    EFAULT_IN(p, syscall(SYS_newfstatat, AT_FDCWD, p, s, 0));
    EFAULT_IN(p, CALL(statx, AT_FDCWD, p, 0, STATX_BASIC_STATS, OUT(struct statx)));
    expect_errno(CALL(stat, str("absent"), s), ENOENT);
    expect_errno(CALL(lstat, str("file/x"), s), ENOTDIR);
    expect_errno(CALL(fstat, -1, s), EBADF);
    expect_errno(CALL(statx, AT_FDCWD, name, 0x40000000, 0, OUT(struct statx)), EINVAL);
    OK(close(fd));
}
BOTH_WAYS(test)
