/* process_vm_readv and process_vm_writev, on the process itself. */
#include "common.h"

static struct iovec *vec(char *p, size_t n) {
    struct iovec v[2] = {{p, n / 2}, {p + n / 2, n - n / 2}};
    return arg(v, sizeof v);
}
static void test(void) {
    char *p = fresh(16), *q = fresh(16);
    fill(p, 16 * PAGE, 110), evict(p, 16 * PAGE);
    EQ(CALL(process_vm_readv, getpid(), vec(q + 5, 9 * PAGE), 2, vec(p + 1, 9 * PAGE), 2, 0), 9 * PAGE);
    check_from(q + 5, 9 * PAGE, 110, 1);
    fill(q, 16 * PAGE, 111), evict(p, 16 * PAGE), evict(q, 16 * PAGE);
    EQ(CALL(process_vm_writev, getpid(), vec(q, 4 * PAGE), 2, vec(p, 4 * PAGE), 2, 0), 4 * PAGE);
    check(p, 4 * PAGE, 111), check_from(p + 4 * PAGE, PAGE, 110, 4 * PAGE);
    EFAULT_IN(b, CALL(process_vm_readv, getpid(), b, 1, vec(p, 10), 1, 0));
    EFAULT_IN(b, CALL(process_vm_readv, getpid(), vec(q, 10), 1, b, 1, 0));
    EFAULT_IN(b, CALL(process_vm_writev, getpid(), vec(q, 10), 1, b, 1, 0));
    for (void **b = bad_in(); *b; b++) {
        expect_errno(CALL(process_vm_readv, getpid(), vec(q, 20), 2, vec(*b, 20), 2, 0), EFAULT);
        expect_errno(CALL(process_vm_writev, getpid(), vec(q, 20), 2, vec(*b, 20), 2, 0), EFAULT);
    }
    expect_errno(CALL(process_vm_readv, getpid(), vec(q, 10), 1, vec(p, 10), 1, 7), EINVAL);
    expect_errno(CALL(process_vm_readv, 0x3fffffff, vec(q, 10), 1, vec(p, 10), 1, 0), ESRCH);
    /* A child reads its parent, whose memory is evicted. */
    fill(p, 16 * PAGE, 112), evict(p, 16 * PAGE);
    pid_t parent = getpid(), pid = fork();
    if (!pid) {
        char *r = fresh(16);
        if (process_vm_readv(parent, vec(r, 16 * PAGE), 2, vec(p, 16 * PAGE), 2, 0) == 16 * (long)PAGE)
            check(r, 16 * PAGE, 112);
        _exit(0);
    }
    expect_exit(pid, 0);
    munmap(p, 16 * PAGE), munmap(q, 16 * PAGE);
}
BOTH_WAYS(test)
