/* Long writes to a connection whose other end reads some of them and is closed: they end with what was sent, and raise no signal; the
 * next one does, and has EPIPE. */
#include "common.h"

enum { BYTES = 16 << 20, READ = 1 << 20, ROUNDS = 6 };
static volatile sig_atomic_t pipes;
static void on_pipe(int signal) { (void)signal, pipes++; }

static long one(int how, int to, char *p) {
    struct iovec parts[2] = {{p, BYTES / 2}, {p + BYTES / 2, BYTES / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    switch (how) {
    case 0: return CALL(write, to, p, BYTES);
    case 1: return CALL(writev, to, parts, 2);
    case 2: return EITHER(send(to, p, BYTES, 0), syscall(SYS_sendto, to, p, (size_t)BYTES, 0, NULL, 0));
    default: return CALL(sendmsg, to, &message, 0);
    }
}
static void closed(int how, char *p) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    pid_t reader = CHILD({
        static char got[READ];
        close(s[0]);
        for (size_t done = 0; done < READ;) {
            ssize_t n = read(s[1], got + done, READ - done);
            CHECK(n > 0);
            done += n;
        }
        close(s[1]), check(got, READ, 5);
    });
    close(s[1]);
    evict(p, BYTES);
    long sent = one(how, s[0], p);
    CHECK(sent >= READ && sent < BYTES);
    EQ(pipes, 0);
    expect_exit(reader, 0);
    expect_errno(one(how, s[0], p), EPIPE);
    EQ(pipes, 1), pipes = 0;
    close(s[0]);
}
int main(void) {
    struct sigaction action = {.sa_handler = on_pipe};
    OK(sigaction(SIGPIPE, &action, NULL));
    char *p = fresh(BYTES / PAGE);
    fill(p, BYTES, 5);
    for (int round = 0; round < ROUNDS; round++) {
        raw_mode = round % 2;
        for (int how = 0; how < 4; how++) closed(how, p);
    }
    puts("ok");
    return 0;
}
