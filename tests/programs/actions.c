/* Calls of a kind that Outswap looks at in programs that it manages, made by one that it does not: all must do what they do
 * anywhere. With numbers in the registers that a call does not use. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../calls/own_call.h"

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);              \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

static volatile int seen;
static void handler(int s) { seen += s == SIGUSR1; }
static void *thread(void *arg) { return arg; }

static void left_over(void) {
    static const unsigned long numbers[] = {0x200000000000UL, 0x200012345678UL, 0x2300deadbeefUL, 0x23fffffff000UL,
        0x1fffff000010UL, 0x1fffff000000UL};
    int zero = open("/dev/zero", O_RDONLY);
    char b[16];
    CHECK(zero >= 0);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        long x = numbers[i];
        CHECK(call6(SYS_read, zero, (long)b, 16, x, x, x) == 16);
        CHECK(call6(SYS_getpid, x, x, x, x, x, x) == getpid());
        CHECK(call6(SYS_getppid, x, x, x, x, x, x) == getppid());
        CHECK(call6(SYS_lseek, zero, 0, SEEK_SET, x, x, x) == 0);
        CHECK(call6(SYS_close, -1, x, x, x, x, x) == -EBADF);
        CHECK(call6(SYS_sched_yield, x, x, x, x, x, x) == 0);
        CHECK(call6(SYS_dup, -1, x, x, x, x, x) == -EBADF);
        CHECK(call6(SYS_kill, getpid(), 0, x, x, x, x) == 0);
        CHECK(call6(SYS_fcntl, zero, F_GETFD, x, x, x, x) == 0);
        CHECK(call6(SYS_umask, 022, x, x, x, x, x) >= 0);
        CHECK(call6(SYS_ftruncate, zero, x, x, x, x, x) == -EINVAL);
        CHECK(call6(SYS_getuid, x, x, x, x, x, x) == (long)getuid());
        CHECK(call6(SYS_write, 1, (long)b, 0, x, x, x) == 0);
    }
    close(zero);
}
static void signals(void) {
    struct sigaction a = {.sa_handler = handler};
    sigset_t set, old;
    CHECK(sigaction(SIGUSR1, &a, NULL) == 0 && sigaction(SIGSEGV, &a, NULL) == 0);
    sigfillset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, &old) == 0 && raise(SIGUSR1) == 0 && seen == 0);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && seen == 1);
    stack_t s = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    CHECK(sigaltstack(&s, NULL) == 0);
}
int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return 6;
    left_over();
    signals();
    struct iovec v[2] = {{"", 0}, {"", 0}};
    CHECK(writev(1, v, 2) == 0);
    int ends[2], status;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct iovec one = {"x", 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
    CHECK(sendmsg(ends[0], &m, 0) == 1);
    pid_t pid = fork();
    if (!pid) {
        left_over();
        _exit(5);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    pid = vfork();
    if (!pid) {
        execl("/proc/self/exe", "actions", "child", NULL);
        _exit(99);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, thread, NULL) == 0 && pthread_join(t, NULL) == 0);
    char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && munmap(p, 1 << 20) == 0);
    for (int i = 3; i < 2000; i++) close(i);
    CHECK(open("/dev/null", O_RDONLY) == 3);
    puts("ok");
    return 0;
}
