/* getcwd, chdir, and realpath above them. */
#include "common.h"

static long do_getcwd(void *p, size_t n) {
    if (raw_mode) return syscall(SYS_getcwd, p, n);
    return getcwd(p, n) ? (long)strlen(p) + 1 : -1;
}
static void test(void) {
    char want[PATH_MAX];
    CHECK(getcwd(want, sizeof want));
    char *p = place(PATH_MAX, 1);
    long n = strlen(want) + 1;
    EQ(do_getcwd(p, PATH_MAX), n), OK(strcmp(p, want));
    memset(p, 7, PATH_MAX), evict(p, PATH_MAX);
    EQ(do_getcwd(p, PATH_MAX), n), OK(strcmp(p, want));
    expect_errno(do_getcwd(p, 3), ERANGE);
    EFAULT_OUT(b, syscall(SYS_getcwd, b, PATH_MAX));
    OK(mkdir("sub", 0700));
    OK(CALL(chdir, str("sub")));
    EQ(do_getcwd(p, PATH_MAX), n + 4);
    OK(CALL(chdir, str("..")));
    expect_errno(CALL(chdir, str("absent")), ENOENT);
    EFAULT_IN(b, CALL(chdir, b));
    EFAULT_EDGE(b, CALL(chdir, b));
    char *real = place(PATH_MAX, 1);
    CHECK(realpath(str("sub/../sub"), real) == real);
    EQ(strlen(real), n + 3);
    OK(rmdir("sub"));
}
BOTH_WAYS(test)
