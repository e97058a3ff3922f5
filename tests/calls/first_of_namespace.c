/* The first process of a namespace of process ids: signals that are sent do not end it unless it handles them, and it starts others that are
 * the first of theirs, and share its memory until they execute a program or end. */
#include "common.h"
#include <sched.h>

enum { PAGES = 4096, CHILDREN = 20, NO_NAMESPACES = 77 };
static char *memory;
static volatile int handled;

static void on_bus(int signal) {
    (void)signal;
    handled++;
}
static int executes(void *unused) {
    (void)unused;
    execl("/bin/sh", "sh", "-c", "exit 3", NULL);
    _exit(1);
}
static int looks(void *unused) {
    (void)unused;
    check(memory, PAGES * PAGE, 1);
    _exit(getpid() == 1 ? 4 : 5);
}
static void again(void) { evict_some(memory, PAGES * PAGE), check(memory, PAGES * PAGE, 1); }

static int first(void) {
    static const int sent[] = {SIGSEGV, SIGBUS, SIGSYS, SIGTERM, SIGUSR1};
    EQ(getpid(), 1);
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        expect_exit(CHILD(OK(kill(1, sent[i])); sleep_ms(5); OK(kill(1, sent[i]))), 0);
        again();
    }
    OK(raise(SIGSEGV)), OK(raise(SIGBUS)), OK(raise(SIGSYS));
    again();
    handle_signal(SIGBUS, on_bus, SA_RESTART);
    expect_exit(CHILD(OK(kill(1, SIGBUS))), 0);
    EQ(handled, 1);
    again();
    char *stack = fresh(16);
    for (int i = 0; i < CHILDREN; i++) {
        int (*what)(void *) = i % 4 == 3 ? looks : executes;
        pid_t child = clone(what, stack + 16 * PAGE, CLONE_VM | CLONE_VFORK | CLONE_NEWPID | SIGCHLD, NULL);
        CHECK(child > 0), expect_exit(child, i % 4 == 3 ? 4 : 3);
        if (i % 8 == 0) again();
    }
    again();
    return 0;
}

int main(void) {
    memory = fresh(PAGES), fill(memory, PAGES * PAGE, 1);
    evict(memory, PAGES * PAGE);
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0))) _exit(NO_NAMESPACES);
        child = fork();
        if (child == 0) _exit(first());
        CHECK(child > 0), expect_exit(child, 0);
        _exit(0);
    }
    int status;
    EQ(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) != NO_NAMESPACES) EQ(status, 0);
    puts("ok");
    return 0;
}
