/* unlink, unlinkat, link, linkat, symlink, symlinkat. */
#include "common.h"

static void test(void) {
    make_file("a", 10, 1);
    struct stat s;
    OK(CALL(link, str("a"), str("b")));
    OK(CALL(linkat, AT_FDCWD, str("a"), AT_FDCWD, str("c"), 0));
    OK(stat("a", &s)), EQ(s.st_nlink, 3);
    OK(CALL(symlink, str("a"), str("d")));
    OK(CALL(symlinkat, str("a"), AT_FDCWD, str("e")));
    char text[8];
    EQ(readlink("d", text, 8), 1), EQ(readlink("e", text, 8), 1), EQ(text[0], 'a');
    char *good = str("a");
    EFAULT_IN(p, CALL(link, p, good));
    EFAULT_IN(p, CALL(link, good, p));
    EFAULT_IN(p, CALL(linkat, AT_FDCWD, p, AT_FDCWD, good, 0));
    EFAULT_IN(p, CALL(linkat, AT_FDCWD, good, AT_FDCWD, p, 0));
    EFAULT_IN(p, CALL(symlink, p, good));
    EFAULT_IN(p, CALL(symlink, good, p));
    EFAULT_IN(p, CALL(symlinkat, p, AT_FDCWD, good));
    EFAULT_IN(p, CALL(symlinkat, good, AT_FDCWD, p));
    EFAULT_IN(p, CALL(unlink, p));
    EFAULT_IN(p, CALL(unlinkat, AT_FDCWD, p, 0));
    EFAULT_EDGE(p, CALL(link, good, p));
    EFAULT_EDGE(p, CALL(symlink, p, good));
    EFAULT_EDGE(p, CALL(unlink, p));
    expect_errno(CALL(link, str("a"), str("b")), EEXIST);
    expect_errno(CALL(link, str("absent"), str("x")), ENOENT);
    expect_errno(CALL(symlink, str("a"), str("d")), EEXIST);
    expect_errno(CALL(unlink, str("absent")), ENOENT);
    expect_errno(CALL(unlinkat, AT_FDCWD, str("a"), 0x40000000), EINVAL);
    OK(CALL(unlink, str("b"))), OK(CALL(unlinkat, AT_FDCWD, str("c"), 0));
    OK(CALL(unlink, str("d"))), OK(CALL(unlink, str("e")));
    OK(mkdir("dir", 0700));
    expect_errno(CALL(unlink, str("dir")), EISDIR);
    OK(CALL(unlinkat, AT_FDCWD, str("dir"), AT_REMOVEDIR));
}
BOTH_WAYS(test)
