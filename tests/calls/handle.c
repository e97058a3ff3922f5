/* name_to_handle_at. Where the file system has no handles, the errors. */
#include "common.h"

static void test(void) {
    make_file("f", 1, 1);
    struct file_handle *h = place(sizeof *h + MAX_HANDLE_SZ, 8);
    int *mount = OUT(int);
    h->handle_bytes = MAX_HANDLE_SZ, evict(h, sizeof *h + MAX_HANDLE_SZ);
    long r = CALL(name_to_handle_at, AT_FDCWD, str("f"), h, mount, 0);
    CHECK(r == 0 || errno == EOPNOTSUPP);
    if (r == 0) {
        CHECK(h->handle_bytes > 0 && h->handle_bytes <= MAX_HANDLE_SZ);
        h->handle_bytes = 0, evict(h, sizeof *h);
        expect_errno(CALL(name_to_handle_at, AT_FDCWD, str("f"), h, mount, 0), EOVERFLOW), CHECK(h->handle_bytes > 0);
        h->handle_bytes = MAX_HANDLE_SZ;
        OK(CALL(name_to_handle_at, AT_FDCWD, str("f"), h, mount, 0));
        evict(h, sizeof *h + MAX_HANDLE_SZ);
        int dir = open(".", O_RDONLY), fd = CALL(open_by_handle_at, dir, h, O_RDONLY);
        CHECK(fd >= 0 || errno == EPERM || errno == EOPNOTSUPP);
        if (fd >= 0) {
            close(fd);
            EFAULT_IN(p, CALL(open_by_handle_at, dir, p, O_RDONLY));
        }
        close(dir);
        char *name = str("f");
        h->handle_bytes = MAX_HANDLE_SZ;
        EFAULT_IN(p, CALL(name_to_handle_at, AT_FDCWD, name, p, mount, 0));
        EFAULT_OUT(p, CALL(name_to_handle_at, AT_FDCWD, name, h, p, 0));
    }
    EFAULT_IN(p, CALL(name_to_handle_at, AT_FDCWD, p, h, mount, 0));
    expect_errno(CALL(name_to_handle_at, AT_FDCWD, str("absent"), h, mount, 0), ENOENT);
}
BOTH_WAYS(test)
