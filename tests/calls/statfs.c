/* statfs and fstatfs. */
#include "common.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>

static void test(void) {
    struct statfs want, *s = OUT(struct statfs);
    OK(statfs(".", &want));
    OK(CALL(statfs, str("."), s)), EQ(s->f_type, want.f_type), EQ(s->f_bsize, want.f_bsize);
    EQ(s->f_blocks, want.f_blocks);
    s = OLD(struct statfs);
    int fd = open(".", O_RDONLY);
    OK(CALL(fstatfs, fd, s)), EQ(s->f_type, want.f_type), EQ(s->f_namelen, want.f_namelen);
    struct statvfs *v = OUT(struct statvfs);
    OK(statvfs(str("."), v)), EQ(v->f_bsize, want.f_bsize);
    char *name = str(".");
    EFAULT_OUT(p, CALL(statfs, name, p));
    EFAULT_OUT(p, CALL(fstatfs, fd, p));
    EFAULT_EDGE(p, CALL(fstatfs, fd, p));
    EFAULT_IN(p, CALL(statfs, p, s));
    EFAULT_EDGE(p, CALL(statfs, p, s));
    expect_errno(CALL(statfs, str("absent"), s), ENOENT);
    expect_errno(CALL(fstatfs, -1, s), EBADF);
    OK(close(fd));
}
BOTH_WAYS(test)
