/* chmod, fchmodat, chown, lchown, fchownat, truncate. */
#include "common.h"

static void test(void) {
    struct stat s;
    make_file("f", 5000, 1);
    OK(CALL(chmod, str("f"), 0640)), OK(stat("f", &s)), EQ(s.st_mode & 07777, 0640);
    OK(EITHER(fchmodat(AT_FDCWD, str("f"), 0600, 0), syscall(SYS_fchmodat, AT_FDCWD, str("f"), 0600)));
    OK(stat("f", &s)), EQ(s.st_mode & 07777, 0600);
    OK(CALL(chown, str("f"), getuid(), getgid()));
    OK(CALL(lchown, str("f"), getuid(), getgid()));
    OK(CALL(fchownat, AT_FDCWD, str("f"), getuid(), -1, 0));
    OK(CALL(truncate, str("f"), 100)), OK(stat("f", &s)), EQ(s.st_size, 100);
    expect_errno(CALL(chmod, str("absent"), 0600), ENOENT);
    expect_errno(CALL(chown, str("absent"), getuid(), -1), ENOENT);
    expect_errno(CALL(truncate, str("absent"), 0), ENOENT);
    expect_errno(CALL(truncate, str("f"), -1L), EINVAL);
    EFAULT_IN(p, CALL(chmod, p, 0600));
    EFAULT_IN(p, EITHER(fchmodat(AT_FDCWD, p, 0600, 0), syscall(SYS_fchmodat, AT_FDCWD, p, 0600)));
    EFAULT_IN(p, CALL(chown, p, -1, -1));
    EFAULT_IN(p, CALL(lchown, p, -1, -1));
    EFAULT_IN(p, CALL(fchownat, AT_FDCWD, p, -1, -1, 0));
    EFAULT_IN(p, CALL(truncate, p, 0));
    EFAULT_EDGE(p, CALL(chmod, p, 0600));
    EFAULT_EDGE(p, CALL(chown, p, -1, -1));
    EFAULT_EDGE(p, CALL(truncate, p, 0));
}
BOTH_WAYS(test)
