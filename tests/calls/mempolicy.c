/* mbind, set_mempolicy, get_mempolicy, move_pages, where they are allowed. libc has no wrappers for them. */
#include "common.h"
#include <linux/mempolicy.h>

int main(void) {
    tmpdir();
    char *p = fresh(8);
    fill(p, 8 * PAGE, 240), evict(p, 8 * PAGE);
    int *mode = OUT(int);
    unsigned long *mask = place(128, 8);
    long r = syscall(SYS_get_mempolicy, mode, mask, 1024, NULL, 0);
    CHECK(r == 0 || errno == ENOSYS || errno == EPERM);
    if (r == 0) {
        EQ(*mode, MPOL_DEFAULT);
        EFAULT_OUT(b, syscall(SYS_get_mempolicy, b, NULL, 0, NULL, 0));
        unsigned long one = 1;
        evict(p, 8 * PAGE);
        r = syscall(SYS_mbind, p, 8 * PAGE, MPOL_PREFERRED, arg(&one, sizeof one), 64, 0);
        CHECK(r == 0 || errno == EPERM);
        if (r == 0) {
            EFAULT_IN(b, syscall(SYS_mbind, p, 8 * PAGE, MPOL_BIND, b, 64, 0));
            expect_errno(syscall(SYS_mbind, p + 1, PAGE, MPOL_DEFAULT, NULL, 0, 0), EINVAL);
            expect_errno(syscall(SYS_mbind, p, PAGE, 99, NULL, 0, 0), EINVAL);
            OK(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
        }
    }
    check(p, 8 * PAGE, 240);
    puts("ok");
    return 0;
}
