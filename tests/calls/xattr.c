/* setxattr, getxattr, listxattr, removexattr, with their l and f forms. Where the file system has none, the errors.
 * */
#include "common.h"
#include <sys/xattr.h>

static void test(void) {
    make_file("f", 1, 1);
    int fd = open("f", O_RDWR);
    char *value = place(1000, 1), *back = place(2000, 1);
    fill(value, 1000, 120), evict(value, 1000);
    int have = CALL(setxattr, str("f"), str("user.one"), value, 1000, 0) == 0;
    if (have) {
        EQ(CALL(getxattr, str("f"), str("user.one"), back, 2000), 1000), check(back, 1000, 120);
        evict(value, 1000), evict(back, 2000);
        OK(CALL(fsetxattr, fd, str("user.two"), value, 900, XATTR_CREATE));
        EQ(CALL(fgetxattr, fd, str("user.two"), back, 2000), 900), check(back, 900, 120);
        OK(CALL(lsetxattr, str("f"), str("user.two"), value, 10, XATTR_REPLACE));
        EQ(CALL(lgetxattr, str("f"), str("user.two"), back, 2000), 10);
        evict(back, 2000);
        long n = CALL(listxattr, str("f"), back, 2000);
        CHECK(n >= 18), EQ(CALL(flistxattr, fd, back, 2000), n), EQ(CALL(llistxattr, str("f"), back, 2000), n);
        expect_errno(CALL(getxattr, str("f"), str("user.one"), back, 10), ERANGE);
        expect_errno(CALL(setxattr, str("f"), str("user.one"), value, 10, XATTR_CREATE), EEXIST);
        char *file = str("f"), *name = str("user.one");
        EFAULT_OUT(p, CALL(getxattr, file, name, p, 1000));
        EFAULT_OUT(p, CALL(listxattr, file, p, 1000));
        EFAULT_IN(p, CALL(setxattr, file, name, p, 1000, 0));
        OK(CALL(removexattr, str("f"), str("user.one"))), OK(CALL(fremovexattr, fd, str("user.two")));
        expect_errno(CALL(lremovexattr, str("f"), str("user.two")), ENODATA);
        expect_errno(CALL(getxattr, str("f"), str("user.one"), back, 2000), ENODATA);
    }
    char *file = str("f"), *name = str("user.one");
    EFAULT_IN(p, CALL(setxattr, p, name, value, 10, 0));
    EFAULT_IN(p, CALL(setxattr, file, p, value, 10, 0));
    EFAULT_IN(p, CALL(getxattr, p, name, back, 10));
    EFAULT_IN(p, CALL(getxattr, file, p, back, 10));
    EFAULT_IN(p, CALL(listxattr, p, back, 10));
    expect_errno(CALL(getxattr, str("absent"), name, back, 10), ENOENT);
    expect_errno(CALL(listxattr, str("absent"), back, 10), ENOENT);
    close(fd);
}
BOTH_WAYS(test)
