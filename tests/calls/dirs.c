/* mkdir, mkdirat, rmdir. */
#include "common.h"

static void test(void) {
    OK(CALL(mkdir, str("one"), 0700));
    OK(CALL(mkdirat, AT_FDCWD, str("two"), 0700));
    expect_errno(CALL(mkdir, str("one"), 0700), EEXIST);
    expect_errno(CALL(mkdir, str("absent/below"), 0700), ENOENT);
    expect_errno(CALL(mkdirat, -1, str("three"), 0700), EBADF);
    OK(mkdir("one/inner", 0700));
    expect_errno(CALL(rmdir, str("one")), ENOTEMPTY);
    OK(CALL(rmdir, str("one/inner"))), OK(CALL(rmdir, str("one"))), OK(CALL(rmdir, str("two")));
    expect_errno(CALL(rmdir, str("one")), ENOENT);
    EFAULT_IN(p, CALL(mkdir, p, 0700));
    EFAULT_IN(p, CALL(mkdirat, AT_FDCWD, p, 0700));
    EFAULT_IN(p, CALL(rmdir, p));
    EFAULT_EDGE(p, CALL(mkdir, p, 0700));
    EFAULT_EDGE(p, CALL(rmdir, p));
}
BOTH_WAYS(test)
