/* membarrier, which has no pointer and must go on working beside whatever uses it. */
#include "common.h"
#include <linux/membarrier.h>

int main(void) {
    tmpdir();
    long have = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    CHECK(have >= 0 || errno == ENOSYS || errno == EPERM);
    if (have > 0 && have & MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        OK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
        for (int i = 0; i < 100; i++) {
            char *p = fresh(4);
            fill(p, 4 * PAGE, i), evict(p, 4 * PAGE);
            OK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
            check(p, 4 * PAGE, i), OK(munmap(p, 4 * PAGE));
        }
    }
    if (have >= 0) expect_errno(syscall(SYS_membarrier, 1 << 30, 0, 0), EINVAL);
    puts("ok");
    return 0;
}
