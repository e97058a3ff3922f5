/* io_uring keeps pointers after its calls return, so under Outswap it is refused; elsewhere it works or is refused.
 * In
 * neither case may asking for it disturb anything. */
#include "common.h"

int main(void) {
    tmpdir();
    char *params = place(120, 8), *p = fresh(4);
    fill(p, 4 * PAGE, 1), memset(params, 0, 120), evict(params, 120), evict(p, 4 * PAGE);
    long fd = syscall(SYS_io_uring_setup, 4, params);
    /* Set by the test harness for a run under Outswap. */
    if (getenv("OUTSWAP_E2E_MANAGED") && !(fd == -1 && errno == ENOSYS)) die("io_uring_setup gave %ld, errno %d", fd,
        errno);
    if (fd >= 0) close(fd);
    CHECK(syscall(SYS_io_uring_enter, -1, 0, 0, 0, p, 8) == -1);
    CHECK(syscall(SYS_io_uring_register, -1, 0, p, 1) == -1);
    check(p, 4 * PAGE, 1);
    puts("ok");
    return 0;
}
