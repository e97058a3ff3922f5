/* fcntl with a struct flock, and F_GETOWN_EX. */
#include "common.h"

static void test(void) {
    make_file("f", 100, 1);
    int fd = open("f", O_RDWR);
    OK(CALL(fcntl, fd, F_SETLK, ARG(struct flock, .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10,
        .l_len = 20)));
    pid_t parent = getpid(), pid = fork();
    if (!pid) {
        struct flock *l = ARG(struct flock, .l_type = F_WRLCK, .l_whence = SEEK_SET);
        OK(CALL(fcntl, fd, F_GETLK, l)), EQ(l->l_pid, parent), EQ(l->l_start, 10), EQ(l->l_len, 20);
        expect_errno(CALL(fcntl, fd, F_SETLK, ARG(struct flock, .l_type = F_RDLCK, .l_whence = SEEK_SET)), EAGAIN);
        _exit(0);
    }
    expect_exit(pid, 0);
    OK(CALL(fcntl, fd, F_SETLKW, ARG(struct flock, .l_type = F_UNLCK, .l_whence = SEEK_SET)));
    OK(CALL(fcntl, fd, F_OFD_SETLK, ARG(struct flock, .l_type = F_WRLCK, .l_whence = SEEK_SET)));
    EFAULT_IN(p, CALL(fcntl, fd, F_SETLK, p));
    EFAULT_IN(p, CALL(fcntl, fd, F_GETLK, p));
    EFAULT_EDGE(p, CALL(fcntl, fd, F_SETLK, p));
    struct f_owner_ex *o = OUT(struct f_owner_ex);
    OK(CALL(fcntl, fd, F_SETOWN_EX, ARG(struct f_owner_ex, F_OWNER_PID, getpid()))),
        OK(CALL(fcntl, fd, F_GETOWN_EX, o));
    EQ(o->pid, getpid());
    EFAULT_OUT(p, CALL(fcntl, fd, F_GETOWN_EX, p));
    expect_errno(CALL(fcntl, fd, F_SETLK, ARG(struct flock, .l_type = 9, .l_whence = SEEK_SET)), EINVAL);
    expect_errno(CALL(fcntl, -1, F_SETLK, ARG(struct flock, .l_type = F_RDLCK)), EBADF);
    close(fd);
}
BOTH_WAYS(test)
