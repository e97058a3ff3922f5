/* access, faccessat, faccessat2. */
#include "common.h"

static void test(void) {
    make_file("file", 10, 1);
    OK(CALL(access, str("file"), R_OK | W_OK));
    OK(EITHER(faccessat(AT_FDCWD, str("file"), R_OK, 0), syscall(SYS_faccessat, AT_FDCWD, str("file"), R_OK)));
    OK(syscall(SYS_faccessat2, AT_FDCWD, str("file"), F_OK, AT_EACCESS));
    expect_errno(CALL(access, str("file"), X_OK), EACCES);
    expect_errno(CALL(access, str("absent"), F_OK), ENOENT);
    expect_errno(CALL(access, str("file"), 64), EINVAL);
    EFAULT_IN(p, CALL(access, p, F_OK));
    EFAULT_IN(p, EITHER(faccessat(AT_FDCWD, p, F_OK, 0), syscall(SYS_faccessat, AT_FDCWD, p, F_OK)));
    EFAULT_IN(p, syscall(SYS_faccessat2, AT_FDCWD, p, F_OK, AT_EACCESS));
    EFAULT_EDGE(p, CALL(access, p, F_OK));
    EFAULT_EDGE(p, syscall(SYS_faccessat, AT_FDCWD, p, F_OK));
}
BOTH_WAYS(test)
