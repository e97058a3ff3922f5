/* process_madvise on the process itself: the vector evicted, the ranges managed. */
#include "common.h"
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

int main(void) {
    tmpdir();
    char *p = fresh(32);
    fill(p, 32 * PAGE, 250), evict(p, 32 * PAGE);
    int fd = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(fd >= 0 || errno == ENOSYS || errno == EPERM);
    struct iovec two[2] = {{p, 8 * PAGE}, {p + 16 * PAGE, 8 * PAGE}};
    static const int hints[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED};
    if (fd >= 0) {
        for (int i = 0; i < 3; i++) {
            errno = 0;
            long n = syscall(SYS_process_madvise, fd, arg(two, sizeof two), 2, hints[i], 0);
            if (n != 16 * (long)PAGE) CHECK(n == -1 && (errno == EPERM || errno == ENOSYS));
            check(p, 32 * PAGE, 250);
        }
        EFAULT_IN(b, syscall(SYS_process_madvise, fd, b, 1, MADV_COLD, 0));
        expect_errno(syscall(SYS_process_madvise, fd, arg(two, sizeof two), 2, MADV_COLD, 99), EINVAL);
        expect_errno(syscall(SYS_process_madvise, -1, arg(two, sizeof two), 2, MADV_COLD, 0), EBADF);
    }
    puts("ok");
    return 0;
}
