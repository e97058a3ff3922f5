/* Calls for the system's owner, and those that libc makes for itself: none of them changes anything here. Only
 * syscall(2) is used, because libc has no wrappers for most. Where a right may be missing, both answers are right. */
#include "common.h"
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/timex.h>
#include <sys/utsname.h>

#define ONE_OF(call, a, b)                                                                                           \
    ({                                                                                                               \
        errno = 0;                                                                                                   \
        long got_ = (long)(call);                                                                                    \
        if (got_ != -1 || (errno != (a) && errno != (b)))                                                            \
            die("%s:%d: %s gave %ld, errno %d", __FILE__, __LINE__, #call, got_, errno);                             \
    })
/* The 64-bit form of struct sched_attr. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};
static void owner(void) {
    EFAULT_IN(p, syscall(SYS_chroot, p));
    expect_errno(syscall(SYS_chroot, str("absent")), ENOENT);
    EFAULT_IN(p, syscall(SYS_mount, str("none"), str("absent"), p, 0, NULL));
    ONE_OF(syscall(SYS_mount, str("none"), str("absent"), str("outswap-none"), 0, str("option")), ENOENT, EPERM);
    ONE_OF(syscall(SYS_umount2, str("absent"), 0), ENOENT, EPERM);
    EFAULT_IN(p, syscall(SYS_clock_settime, CLOCK_REALTIME, p));
    ONE_OF(syscall(SYS_clock_settime, CLOCK_REALTIME, ARG(struct timespec, 0, -1)), EINVAL, EPERM);
    EFAULT_IN(p, syscall(SYS_settimeofday, p, NULL));
    ONE_OF(syscall(SYS_settimeofday, ARG(struct timeval, 0, -1), NULL), EINVAL, EPERM);
    CHECK(syscall(SYS_clock_adjtime, CLOCK_REALTIME, OUT(struct timex)) >= 0);
    EFAULT_IN(p, syscall(SYS_clock_adjtime, CLOCK_REALTIME, p));
    pid_t pid = fork();
    if (!pid) {
        gid_t two[2] = {3, 4}, *got = place(8, 4);
        if (syscall(SYS_setgroups, 2, arg(two, sizeof two)) == 0) {
            EQ(syscall(SYS_getgroups, 2, got), 2);
            EQ(got[0], 3);
            EQ(got[1], 4);
            EFAULT_IN(p, syscall(SYS_setgroups, 2, p));
        } else
            EQ(errno, EPERM);
        _exit(0);
    }
    expect_exit(pid, 0);
    struct utsname u;
    OK(uname(&u));
    ONE_OF(syscall(SYS_sethostname, str(u.nodename), -1L), EINVAL, EPERM);
    ONE_OF(syscall(SYS_setdomainname, str(u.domainname), -1L), EINVAL, EPERM);
    ONE_OF(syscall(SYS_sethostname, bad_in()[2], 5), EFAULT, EPERM);
    char *log = place(20000, 1);
    long n = syscall(SYS_syslog, 3, log, 20000);
    CHECK(n >= 0 || errno == EPERM || errno == ENOSYS);
    if (n > 0) EFAULT_OUT(p, syscall(SYS_syslog, 3, p, 20000));
    long fd = syscall(SYS_fanotify_mark, -1, 1, 8L, AT_FDCWD, str("."));
    CHECK(fd == -1 && (errno == EBADF || errno == EINVAL || errno == ENOSYS || errno == EPERM));
    struct perf_event_attr *a = ARG(struct perf_event_attr, .type = PERF_TYPE_SOFTWARE, .size = sizeof *a,
                                    .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1);
    fd = syscall(SYS_perf_event_open, a, 0, -1, -1, 0);
    CHECK(fd >= 0 || errno == EACCES || errno == EPERM || errno == ENOSYS || errno == ENOENT);
    if (fd >= 0) {
        close(fd);
        EFAULT_IN(p, syscall(SYS_perf_event_open, p, 0, -1, -1, 0));
    }
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct *data = place(2 * sizeof *data, 4);
    OK(syscall(SYS_capget, arg(&head, sizeof head), data));
    evict(data, 2 * sizeof *data);
    OK(syscall(SYS_capset, arg(&head, sizeof head), data));
    EFAULT_OUT(p, syscall(SYS_capget, arg(&head, sizeof head), p));
    EFAULT_IN(p, syscall(SYS_capset, p, data));
}
static void inner(void) {
    struct attributes *a = OUT(struct attributes);
    OK(syscall(SYS_sched_getattr, 0, a, sizeof *a, 0));
    EQ(a->policy, SCHED_OTHER);
    evict(a, sizeof *a);
    OK(syscall(SYS_sched_setattr, 0, a, 0));
    EFAULT_OUT(p, syscall(SYS_sched_getattr, 0, p, sizeof *a, 0));
    EFAULT_IN(p, syscall(SYS_sched_setattr, 0, p, 0));
    void **head = OUT(void *);
    size_t *size = OUT(size_t);
    OK(syscall(SYS_get_robust_list, 0, head, size));
    OK(syscall(SYS_set_robust_list, *head, *size));
    EFAULT_OUT(p, syscall(SYS_get_robust_list, 0, p, size));
    expect_errno(syscall(SYS_set_robust_list, *head, 1), EINVAL);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    int fd = syscall(SYS_signalfd, -1, arg(&mask, sizeof mask), 8);
    CHECK(fd >= 0);
    close(fd);
    EFAULT_IN(p, syscall(SYS_signalfd, -1, p, 8));
    long r = syscall(SYS_rseq, place(32, 32), 7, 0, 0);
    CHECK(r == -1 && (errno == EINVAL || errno == ENOSYS || errno == EPERM));
    /* The kernel clears this word when the thread ends, long after the call. */
    pid_t pid = fork();
    if (!pid) {
        EQ(syscall(SYS_set_tid_address, OUT(int)), gettid());
        _exit(0);
    }
    expect_exit(pid, 0);
}
int main(void) {
    tmpdir();
    owner();
    inner();
    puts("ok");
    return 0;
}
