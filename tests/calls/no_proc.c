/* A program that starts where there is no /proc: its memory comes back, whatever it does with descriptors, masks, stacks and children. */
#include "common.h"
#include <sched.h>
#include <sys/mount.h>

enum { PAGES = 512, NO_NAMESPACES = 77 };
static char *memory;
static volatile int handled;

static void on_usr1(int signal) {
    char below[4 * 4096];
    (void)signal;
    fill(below, sizeof below, 2), check(below, sizeof below, 2);
    handled++;
}
static void again(void) {
    evict(memory, PAGES * PAGE);
    check(memory, PAGES * PAGE, 1);
}

static void without(void) {
    EQ(access("/proc/self/maps", F_OK), -1);
    memory = fresh(PAGES), fill(memory, PAGES * PAGE, 1);
    again();
    /* Structures that lie outside of managed memory, and point into it. */
    int ends[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct iovec part = {memory + 7 * PAGE, 3 * PAGE};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    evict(memory, PAGES * PAGE);
    EQ(sendmsg(ends[0], &message, 0), 3 * PAGE);
    memset(memory + 7 * PAGE, 0, 3 * PAGE);
    evict(memory, PAGES * PAGE);
    EQ(recvmsg(ends[1], &message, MSG_WAITALL), 3 * PAGE);
    again();
    char *room = fresh(16);
    OK(sigaltstack(&(stack_t){.ss_sp = room, .ss_size = 16 * PAGE}, NULL));
    handle_signal(SIGUSR1, on_usr1, SA_ONSTACK);
    evict(room, 16 * PAGE);
    OK(raise(SIGUSR1)), EQ(handled, 1);
    sigset_t all, old;
    sigfillset(&all);
    OK(sigprocmask(SIG_SETMASK, &all, &old));
    again();
    OK(sigprocmask(SIG_SETMASK, &old, NULL));
    for (int fd = 3; fd < 1024; fd++) close(fd);
    again();
    expect_exit(CHILD(again(); memset(memory, 3, PAGES * PAGE)), 0);
    again();
}

int main(int argc, char **argv) {
    if (argc > 1) {
        without();
        return 0;
    }
    char self[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    memory = fresh(PAGES), fill(memory, PAGES * PAGE, 1);
    again();
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
            || mount("none", "/proc", "tmpfs", 0, NULL)) _exit(NO_NAMESPACES);
        execl(self, argv[0], "without", NULL);
        _exit(1);
    }
    int status;
    EQ(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) != NO_NAMESPACES) EQ(status, 0);
    puts("ok");
    return 0;
}
