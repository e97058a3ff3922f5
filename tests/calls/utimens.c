/* utimensat, utimes, utime, futimesat. */
#include "common.h"
#include <utime.h>

static struct timespec *two(long a, long b) {
    struct timespec t[2] = {{a, 11}, {b, 22}};
    return arg(t, sizeof t);
}
static void test(void) {
    struct stat s;
    make_file("f", 10, 1);
    OK(CALL(utimensat, AT_FDCWD, str("f"), two(1000, 2000), 0));
    OK(stat("f", &s)), EQ(s.st_atim.tv_sec, 1000), EQ(s.st_mtim.tv_sec, 2000), EQ(s.st_mtim.tv_nsec, 22);
    int fd = open("f", O_RDWR);
    OK(EITHER(futimens(fd, two(3000, 4000)), syscall(SYS_utimensat, fd, NULL, two(3000, 4000), 0)));
    OK(stat("f", &s)), EQ(s.st_mtim.tv_sec, 4000);
    struct timeval v[2] = {{50, 0}, {60, 0}};
    OK(CALL(utimes, str("f"), arg(v, sizeof v))), OK(stat("f", &s)), EQ(s.st_mtim.tv_sec, 60);
    OK(CALL(utime, str("f"), ARG(struct utimbuf, 70, 80))), OK(stat("f", &s)), EQ(s.st_mtim.tv_sec, 80);
    OK(syscall(SYS_futimesat, AT_FDCWD, str("f"), arg(v, sizeof v))), OK(stat("f", &s)), EQ(s.st_mtim.tv_sec, 60);
    char *name = str("f");
    struct timespec *t = two(1, 2), *wrong = two(1, 2);
    wrong->tv_nsec = 2000000000;
    evict(wrong, 32);
    EFAULT_IN(p, CALL(utimensat, AT_FDCWD, name, p, 0));
    EFAULT_EDGE(p, CALL(utimensat, AT_FDCWD, name, p, 0));
    EFAULT_IN(p, CALL(utimensat, AT_FDCWD, p, t, 0));
    EFAULT_IN(p, syscall(SYS_utimes, p, NULL));
    EFAULT_IN(p, syscall(SYS_utimes, name, p));
    EFAULT_IN(p, syscall(SYS_utime, name, p));
    expect_errno(CALL(utimensat, AT_FDCWD, str("absent"), t, 0), ENOENT);
    expect_errno(CALL(utimensat, AT_FDCWD, name, wrong, 0), EINVAL);
    OK(close(fd));
}
BOTH_WAYS(test)
