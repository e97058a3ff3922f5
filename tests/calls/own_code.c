/* Calls whose pointers hide in structures, fork and exec, by an instruction of the program's own instead of the C library's. */
#include "common.h"
#include "own_call.h"

static long own(long nr, long a, long b, long c, long d, long e, long f) {
    long value = call6(nr, a, b, c, d, e, f);
    if (value < 0) errno = -value;
    return value < 0 ? -1 : value;
}
#define OWN(nr, a, b, c, d, e) own(SYS_##nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

enum { LENGTH = 5000 };

static void vectors(void) {
    char *p = fresh(64);
    fill(p, 64 * PAGE, 50);
    struct iovec v[] = {{p, LENGTH}, {p + 32 * PAGE, LENGTH}}, *w = place(sizeof v, 16);
    memcpy(w, v, sizeof v);
    int fd = open("file", O_CREAT | O_TRUNC | O_RDWR, 0644);
    evict(p, 64 * PAGE), evict(w, sizeof v);
    EQ(OWN(writev, fd, w, 2, 0, 0), 2 * LENGTH);
    char *q = fresh(16);
    struct iovec x = {q, 2 * LENGTH};
    memset(q, 7, 16 * PAGE), evict(q, 16 * PAGE);
    EQ(OWN(preadv, fd, &x, 1, 0, 0), 2 * LENGTH);
    check(q, LENGTH, 50), check_from(q + LENGTH, LENGTH, 50, 32 * PAGE);
    OK(close(fd)), OK(unlink("file"));
}

static void messages(void) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    char *p = fresh(16), *q = fresh(16);
    fill(p, LENGTH, 51);
    struct iovec out = {p, LENGTH}, in = {q, LENGTH};
    struct msghdr *to = ARG(struct msghdr, .msg_iov = &out, .msg_iovlen = 1);
    struct msghdr *from = ARG(struct msghdr, .msg_iov = &in, .msg_iovlen = 1);
    evict(p, LENGTH);
    EQ(OWN(sendmsg, s[0], to, 0, 0, 0), LENGTH);
    memset(q, 7, LENGTH), evict(q, LENGTH);
    EQ(OWN(recvmsg, s[1], from, 0, 0, 0), LENGTH);
    check(q, LENGTH, 51);
    OK(close(s[0])), OK(close(s[1]));
}

static void children(void) {
    char *p = fresh(1024);
    fill(p, 1024 * PAGE, 52);
    evict(p, 1024 * PAGE);
    for (int way = 0; way < 2; way++) {
        pid_t pid = way ? OWN(clone, SIGCHLD, 0, 0, 0, 0) : OWN(fork, 0, 0, 0, 0, 0);
        if (!pid) {
            check(p, 1024 * PAGE, 52);
            char **argv = place(2 * sizeof *argv, 8);
            argv[0] = str("true"), argv[1] = NULL;
            evict(argv, 2 * sizeof *argv);
            OWN(execve, str("/bin/true"), argv, environ, 0, 0);
            _exit(1);
        }
        expect_exit(pid, 0);
    }
    check(p, 1024 * PAGE, 52);
}

int main(void) {
    tmpdir();
    vectors();
    messages();
    children();
    puts("ok");
    return 0;
}
