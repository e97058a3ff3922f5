/* process_madvise on the process itself: the vector evicted, the ranges managed, or some of them; by an instruction of the program's own;
 * and by a child that has the same memory. */
#include "common.h"
#include "own_call.h"
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { MANAGED = 64 };

/* Advice that loses content is followed, or refused, and nothing between: a kernel may do it for those alone that share the memory. */
static void loses(char *p, long n, long error) {
    if (n > 0) check_zero(p, MANAGED * PAGE);
    else CHECK(n == -1 && (error == EPERM || error == EINVAL || error == ENOSYS)), check(p, MANAGED * PAGE, 3);
    fill(p, MANAGED * PAGE, 3), evict(p, MANAGED * PAGE), check(p, MANAGED * PAGE, 3);
}
static void mixed(int fd) {
    char *beside = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(beside != MAP_FAILED);
    *beside = 1;
    char *p = fresh(MANAGED);
    for (int evicted = 0; evicted < 2; evicted++) {
        fill(p, MANAGED * PAGE, 3);
        struct iovec both[2] = {{beside, PAGE}, {p, MANAGED * PAGE}};
        static const int advice[] = {MADV_DONTNEED, MADV_FREE, MADV_WIPEONFORK, 12 /* MADV_MERGEABLE */};
        if (evicted) evict(p, MANAGED * PAGE);
        errno = 0;
        long n = syscall(SYS_process_madvise, fd, both, 2, advice[0], 0);
        loses(p, n, errno);
        if (evicted) evict(p, MANAGED * PAGE);
        n = call6(SYS_process_madvise, fd, (long)&both[1], 1, advice[0], 0, 0);
        loses(p, n < 0 ? -1 : n, n < 0 ? -n : 0);
        for (int i = 1; i < 4; i++) {
            n = syscall(SYS_process_madvise, fd, both, 2, advice[i], 0);
            CHECK(n > 0 || errno == EPERM || errno == EINVAL || errno == ENOSYS);
            fill(p, MANAGED * PAGE, 4), evict(p, MANAGED * PAGE), check(p, MANAGED * PAGE, 4), fill(p, MANAGED * PAGE, 3);
        }
    }
    /* A child that has its parent's memory names it by its number. */
    for (int evicted = 0; evicted < 2; evicted++) {
        static volatile long done, error;
        if (evicted) evict(p, MANAGED * PAGE);
        pid_t parent = getpid(), child = vfork();
        if (child == 0) {
            struct iovec it = {p, MANAGED * PAGE};
            int of_parent = syscall(SYS_pidfd_open, parent, 0);
            done = syscall(SYS_process_madvise, of_parent, &it, 1, MADV_DONTNEED, 0), error = errno;
            close(of_parent);
            _exit(0);
        }
        expect_exit(child, 0);
        loses(p, done, error);
    }
    OK(munmap(p, MANAGED * PAGE));
}

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
        mixed(fd);
    }
    puts("ok");
    return 0;
}
