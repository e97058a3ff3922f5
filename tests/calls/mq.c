/* mq_open, mq_timedsend, mq_timedreceive, mq_getsetattr, mq_notify, mq_unlink, where the kernel has them. */
#include "common.h"
#include <linux/netlink.h>
#include <mqueue.h>

/* Told by a socket: the kernel reads 32 bytes of the caller's, and sends them when a message comes. */
static void tell_socket(mqd_t q) {
    enum { COOKIE = 32 };
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (s < 0) return;
    char cookie[COOKIE], got[COOKIE] = {0};
    fill(cookie, COOKIE, 7);
    for (int evicted = 0; evicted < 2; evicted++) {
        struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_signo = s, .sigev_value.sival_ptr = arg(cookie, COOKIE)};
        OK(syscall(SYS_mq_notify, q, evicted ? arg(&e, sizeof e) : &e));
        OK(mq_send(q, "1", 1, 0));
        EQ(recv(s, got, sizeof got, 0), COOKIE), check(got, COOKIE - 1, 7);
        EQ(mq_receive(q, (char[8192]){0}, 8192, NULL), 1);
    }
    struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_signo = s, .sigev_value.sival_ptr = bad_in()[2]};
    expect_errno(syscall(SYS_mq_notify, q, &e), EFAULT);
    close(s);
}

static void test(void) {
    char name[64];
    snprintf(name, sizeof name, "/outswap-%d", getpid());
    mqd_t q = mq_open(str(name), O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600,
        ARG(struct mq_attr, .mq_maxmsg = 4, .mq_msgsize = 8192));
    if (q < 0 && (errno == ENOSYS || errno == EACCES || errno == EMFILE)) return;
    CHECK(q >= 0);
    char *p = fresh(4), *r = fresh(4);
    fill(p, 4 * PAGE, 130), evict(p, 4 * PAGE);
    struct timespec *far = ARG(struct timespec, 4000000000, 0);
    OK(CALL(mq_timedsend, q, p + 100, 8000, 5, far));
    unsigned *priority = OUT(unsigned);
    evict(far, sizeof *far);
    EQ(CALL(mq_timedreceive, q, r + 33, 8192, priority, far), 8000), check_from(r + 33, 8000, 130, 100),
        EQ(*priority, 5);
    expect_errno(CALL(mq_timedreceive, q, r, 8192, priority, far), EAGAIN);
    expect_errno(CALL(mq_timedreceive, q, r, 10, priority, far), EMSGSIZE);
    EFAULT_IN(b, CALL(mq_timedsend, q, b, 100, 5, far));
    EFAULT_IN(b, syscall(SYS_mq_timedsend, q, p, 100, 5, b));
    struct mq_attr *a = OUT(struct mq_attr);
    OK(mq_getattr(q, a)), EQ(a->mq_msgsize, 8192);
    EFAULT_OUT(b, syscall(SYS_mq_getsetattr, q, NULL, b));
    OK(mq_notify(q, ARG(struct sigevent, .sigev_notify = SIGEV_NONE))), OK(mq_notify(q, NULL));
    EFAULT_IN(b, syscall(SYS_mq_notify, q, b));
    tell_socket(q);
    EFAULT_IN(b, syscall(SYS_mq_unlink, b));
    OK(mq_unlink(str(name))), OK(mq_close(q));
    munmap(p, 4 * PAGE), munmap(r, 4 * PAGE);
}
BOTH_WAYS(test)
