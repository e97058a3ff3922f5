/* readlink and readlinkat. */
#include "common.h"

static void test(void) {
    char *target = place(3000, 1);
    memset(target, 't', 2999), target[2999] = 0;
    unlink("link");
    evict(target, 3000);
    OK(symlink(target, "link"));
    char *buffer = place(PATH_MAX, 1);
    EQ(CALL(readlink, str("link"), buffer, PATH_MAX), 2999);
    OK(memcmp(buffer, target, 2999)), EQ(buffer[2999], 0);
    memset(buffer, 1, PATH_MAX);
    evict(buffer, PATH_MAX);
    EQ(CALL(readlinkat, AT_FDCWD, str("link"), buffer, PATH_MAX), 2999);
    OK(memcmp(buffer, target, 2999)), EQ(buffer[2999], 1);
    evict(buffer, PATH_MAX);
    EQ(CALL(readlink, str("link"), buffer, 100), 100);
    char *name = str("link");
    EFAULT_OUT(p, CALL(readlink, name, p, 100));
    EFAULT_OUT(p, CALL(readlinkat, AT_FDCWD, name, p, 100));
    EFAULT_EDGE(p, CALL(readlink, name, p, 100));
    EFAULT_IN(p, CALL(readlink, p, buffer, 100));
    EFAULT_IN(p, CALL(readlinkat, AT_FDCWD, p, buffer, 100));
    EFAULT_EDGE(p, CALL(readlink, p, buffer, 100));
    make_file("plain", 1, 1);
    expect_errno(CALL(readlink, str("plain"), buffer, 100), EINVAL);
    expect_errno(CALL(readlink, name, buffer, minus_one + 1), EINVAL);
    expect_errno(CALL(readlinkat, -1, str("link"), buffer, 100), EBADF);
}
BOTH_WAYS(test)
