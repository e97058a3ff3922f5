/* Calls on files that came late: fchmodat2, cachestat, file_getattr, file_setattr, and attributes by a structure with a pointer. */
#include "alike.h"

enum { CACHESTAT = 451, FCHMODAT2 = 452, SETXATTRAT = 463, GETXATTRAT, LISTXATTRAT, REMOVEXATTRAT, GETATTR = 468, SETATTR };
struct value {
    uint64_t at;
    uint32_t size, flags;
};
static struct value *value(const char *content, size_t n) {
    return THE(struct value, (uintptr_t)in(content, n), n, 0);
}
int main(void) {
    tmpdir();
    make_file("file", 3 * PAGE, 1);
    struct stat s;
    long done = ALIKE(syscall(FCHMODAT2, AT_FDCWD, text("file"), 0640, 0));
    OK(stat("file", &s));
    if (!done) EQ(s.st_mode & 0777, 0640);
    ALIKE(syscall(FCHMODAT2, AT_FDCWD, text("absent"), 0640, 0));
    BAD(syscall(FCHMODAT2, AT_FDCWD, bad_in()[2], 0640, 0));
    int fd = open("file", O_RDONLY);
    uint64_t range[2] = {0, 3 * PAGE}, *found;
    ALIKE(({
        long r = syscall(CACHESTAT, fd, in(range, sizeof range), found = zeros(40), 0);
        if (!r) EQ(found[0], 3);
        r;
    }));
    BAD(syscall(CACHESTAT, fd, bad_in()[2], zeros(40), 0));
    BAD(syscall(CACHESTAT, fd, in(range, sizeof range), bad_out()[2], 0));
    close(fd);
    ALIKE(syscall(GETATTR, AT_FDCWD, text("file"), zeros(24), 24, 0));
    ALIKE(syscall(GETATTR, AT_FDCWD, text("absent"), zeros(24), 24, 0));
    ALIKE(syscall(SETATTR, AT_FDCWD, text("absent"), zeros(24), 24, 0));
    char *content = heap(5000), *list;
    fill(content, 3000, 4);
    done = ALIKE(syscall(SETXATTRAT, AT_FDCWD, text("file"), 0, text("user.outswap"), value(content, 2000), 16));
    if (!done) {
        ALIKE(({
            struct value *v = value(content, 2000);
            char *back = (char *)v->at;
            memset(back, 0, 2000), evict(back, 2000);
            long r = syscall(GETXATTRAT, AT_FDCWD, text("file"), 0, text("user.outswap"), v, 16);
            EQ(r, 2000);
            check(back, 2000, 4);
            r;
        }));
        ALIKE(syscall(LISTXATTRAT, AT_FDCWD, text("file"), 0, list = zeros(1000), 1000));
        CHECK(memmem(list, 1000, "user.outswap", 13));
        struct value bad = {(uintptr_t)bad_in()[2], 100, 0};
        BAD(syscall(SETXATTRAT, AT_FDCWD, "file", 0, "user.outswap", &bad, 16));
        OK(syscall(REMOVEXATTRAT, AT_FDCWD, str("file"), 0, str("user.outswap")));
    }
    ALIKE(syscall(REMOVEXATTRAT, AT_FDCWD, text("file"), 0, text("user.outswap")));
    free(content);
    puts("ok");
    return 0;
}
