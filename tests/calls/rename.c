/* rename, renameat, renameat2. */
#include "common.h"

static void test(void) {
    make_file("a", 10, 1);
    OK(CALL(rename, str("a"), str("b")));
    OK(CALL(renameat, AT_FDCWD, str("b"), AT_FDCWD, str("c")));
    OK(CALL(renameat2, AT_FDCWD, str("c"), AT_FDCWD, str("d"), RENAME_NOREPLACE));
    make_file("e", 20, 1);
    expect_errno(CALL(renameat2, AT_FDCWD, str("d"), AT_FDCWD, str("e"), RENAME_NOREPLACE), EEXIST);
    expect_errno(CALL(rename, str("absent"), str("x")), ENOENT);
    expect_errno(CALL(renameat, -1, str("d"), AT_FDCWD, str("x")), EBADF);
    expect_errno(CALL(renameat2, AT_FDCWD, str("d"), AT_FDCWD, str("x"), 0x100), EINVAL);
    char *good = str("d");
    EFAULT_IN(p, CALL(rename, p, good));
    EFAULT_IN(p, CALL(rename, good, p));
    EFAULT_IN(p, CALL(renameat, AT_FDCWD, p, AT_FDCWD, good));
    EFAULT_IN(p, CALL(renameat, AT_FDCWD, good, AT_FDCWD, p));
    EFAULT_IN(p, CALL(renameat2, AT_FDCWD, p, AT_FDCWD, good, 0));
    EFAULT_IN(p, CALL(renameat2, AT_FDCWD, good, AT_FDCWD, p, 0));
    EFAULT_EDGE(p, CALL(rename, p, good));
    EFAULT_EDGE(p, CALL(rename, good, p));
    OK(unlink("d")), OK(unlink("e"));
}
BOTH_WAYS(test)
