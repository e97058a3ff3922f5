/* mknod and mknodat, with FIFOs, which anyone may make. */
#include "common.h"

static void test(void) {
    struct stat s;
    OK(CALL(mknod, str("one"), S_IFIFO | 0600, 0));
    OK(CALL(mknodat, AT_FDCWD, str("two"), S_IFIFO | 0600, 0));
    OK(stat("one", &s)), CHECK(S_ISFIFO(s.st_mode)), OK(stat("two", &s)), CHECK(S_ISFIFO(s.st_mode));
    expect_errno(CALL(mknod, str("one"), S_IFIFO | 0600, 0), EEXIST);
    expect_errno(CALL(mknod, str("no/one"), S_IFIFO | 0600, 0), ENOENT);
    EFAULT_IN(p, CALL(mknod, p, S_IFIFO | 0600, 0));
    EFAULT_IN(p, CALL(mknodat, AT_FDCWD, p, S_IFIFO | 0600, 0));
    EFAULT_EDGE(p, CALL(mknod, p, S_IFIFO | 0600, 0));
    OK(mkfifo(str("three"), 0600));
    OK(unlink("one")), OK(unlink("two")), OK(unlink("three"));
}
BOTH_WAYS(test)
