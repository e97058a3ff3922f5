/* getdents64, directly and under readdir, scandir, nftw. */
#include "common.h"
#include <dirent.h>

struct entry {
    uint64_t inode, off;
    uint16_t length;
    uint8_t type;
    char name[];
};
static long do_getdents(int fd, void *p,
    size_t n) { return EITHER(getdents64(fd, p, n), syscall(SYS_getdents64, fd, p, n)); }

static void test(void) {
    enum { FILES = 700 };
    char name[64];
    mkdir("d", 0700);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "d/some-file-with-a-longish-name-%05d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0), OK(close(fd));
    }
    static char seen[FILES];
    memset(seen, 0, sizeof seen);
    int fd = open("d", O_RDONLY), found = 0;
    char *p = place(3 * PAGE, 8);
    for (long n; (n = do_getdents(fd, p, 3 * PAGE)) != 0;) {
        CHECK(n > 0);
        for (long at = 0; at < n;) {
            struct entry *e = (struct entry *)(p + at);
            int i;
            if (sscanf(e->name, "some-file-with-a-longish-name-%d", &i) == 1) EQ(seen[i]++, 0), found++;
            at += e->length;
        }
        evict(p, 3 * PAGE);
    }
    EQ(found, FILES);
    EQ(do_getdents(fd, bad_in()[1], 100), 0);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EFAULT_OUT(b, do_getdents(fd, b, PAGE));
    expect_errno(do_getdents(fd, p, 2), EINVAL);
    expect_errno(do_getdents(-1, p, PAGE), EBADF);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    long old = syscall(SYS_getdents, fd, place(PAGE, 8), PAGE);
    CHECK(old > 0 && old <= (long)PAGE);
    EQ(lseek(fd, 0, SEEK_SET), 0);
    EFAULT_OUT(b, syscall(SYS_getdents, fd, b, PAGE));
    OK(close(fd));
    DIR *d = opendir(str("d"));
    CHECK(d);
    found = 0;
    for (struct dirent *e; (e = readdir(d));) found += e->d_name[0] == 's', evict(e, sizeof *e);
    EQ(found, FILES);
    OK(closedir(d));
    struct dirent **list;
    EQ(scandir("d", &list, NULL, alphasort), FILES + 2);
    for (int i = 0; i < FILES + 2; i++) free(list[i]);
    free(list);
}
BOTH_WAYS(test)
