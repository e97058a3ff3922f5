/* Files that the kernel writes as they are read, into buffers of any length: they tell of the thread what is the program's, its blocked
 * signals among it, and are read to their end. Writes are whole. */
#include "common.h"

enum { LONG = 8 << 20 };
static char *into;

static ssize_t whole(int fd, int how) {
    ssize_t done = 0, n;
    do {
        evict(into, LONG);
        struct iovec parts[2] = {{into + done, (LONG - done) / 2}, {into + done + (LONG - done) / 2, (LONG - done) / 2}};
        n = how == 0 ? read(fd, into + done, LONG - done) : how == 1 ? pread(fd, into + done, LONG - done, done)
            : how == 2 ? readv(fd, parts, 2) : preadv(fd, parts, 2, done);
        CHECK(n >= 0);
        done += n;
    } while (n > 0);
    into[done] = 0;
    return done;
}
static void blocked(unsigned long want) {
    for (int how = 0; how < 4; how++) {
        int fd = open("/proc/thread-self/status", O_RDONLY);
        CHECK(fd >= 0 && whole(fd, how) > 500), OK(close(fd));
        char *line = strstr(into, "SigBlk:");
        CHECK(line && strstr(into, "voluntary_ctxt_switches:"));
        EQ(strtoul(line + 7, NULL, 16), want);
    }
}
int main(void) {
    tmpdir();
    into = fresh(LONG / PAGE + 1), memset(into, 1, LONG);
    blocked(0);
    sigset_t two;
    sigemptyset(&two), sigaddset(&two, SIGUSR1), sigaddset(&two, SIGRTMAX);
    OK(sigprocmask(SIG_BLOCK, &two, NULL)), blocked(1UL << (SIGUSR1 - 1) | 1UL << (SIGRTMAX - 1));
    /* One of several pages. */
    for (int how = 0; how < 4; how++) {
        int fd = open("/proc/self/smaps", O_RDONLY);
        CHECK(fd >= 0 && whole(fd, how) > 4096), OK(close(fd)), CHECK(strstr(into, "[stack]") && strstr(into, "[vdso]"));
    }
    /* A file of the program's that looks alike until it is written to: writes are never cut. */
    for (int how = 0; how < 4; how++) {
        struct iovec parts[2] = {{into, LONG / 2}, {into + LONG / 2, LONG / 2}};
        int fd = open("own", O_CREAT | O_TRUNC | O_WRONLY, 0444);
        noise(into, LONG, 1), evict(into, LONG);
        CHECK(fd >= 0), EQ(how == 0 ? write(fd, into, LONG) : how == 1 ? pwrite(fd, into, LONG, 0)
            : how == 2 ? writev(fd, parts, 2) : pwritev(fd, parts, 2, 0), LONG), OK(close(fd));
        memset(into, 1, LONG), evict(into, LONG);
        CHECK((fd = open("own", O_RDONLY)) >= 0), EQ(how % 2 ? readv(fd, parts, 2) : read(fd, into, LONG), LONG), OK(close(fd));
        check_noise(into, LONG, 1), OK(unlink("own"));
    }
    puts("ok");
    return 0;
}
