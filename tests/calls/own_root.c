/* A program that sandboxes itself as browsers do: a child that shares its memory and its root directory moves that to an empty one that
 * is gone with it; then nothing may lead out, no descriptor of a directory, and there may be one thread alone. Its children, each the
 * first of a pid namespace, have more memory than there is room for. */
#include "roots.h"
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { PAGES = 1024, CHILDREN = 4, CHILD_PAGES = 3072, STACK_BYTES = 1 << 16 };
static int proc = -1;
/* Where a program under Outswap has no userfaultfd, a child would have to open its memory by name. */
static int forks = 1;

static int nothing(void *unused) {
    (void)unused;
    _exit(0);
}

/* It goes on after a child of its own, which shares the memory, too, and needs memory that may be gone. */
static int move_root(void *memory) {
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    if (chroot("/proc/self/fdinfo") || chdir("/")) _exit(1);
    int status = -1;
    pid_t pid = clone(nothing, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    if (waitpid(pid, &status, 0) != pid || status) _exit(2);
    check(memory, PAGES * PAGE, 1);
    _exit(0);
}

/* Ends who makes or uses a socket: the runtime must not. */
static void refuse_sockets(void) {
    static const int refused[] = {SYS_socket, SYS_socketpair, SYS_sendmsg, SYS_recvmsg};
    enum { REFUSED = sizeof refused / sizeof *refused };
    struct sock_filter code[REFUSED + 3], *at = code;
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < REFUSED; i++) *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], REFUSED - i, 0);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {at - code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* A directory has two names, and one more for each in it. */
static int threads(void) {
    struct stat status;
    OK(fstatat(proc, "self/task/", &status, 0));
    return status.st_nlink - 2;
}

static void *thread(void *p) {
    check(p, CHILD_PAGES * PAGE, 3), fill(p, CHILD_PAGES * PAGE, 4);
    return NULL;
}

static void child(char *inherited, int ready, int go) {
    EQ(getpid(), 1);
    EQ(threads(), 1);
    char *p = fresh(CHILD_PAGES);
    fill(p, CHILD_PAGES * PAGE, 3), check(inherited, PAGES * PAGE, 1);
    EQ(threads(), 1);
    EQ(write(ready, "r", 1), 1);
    char byte;
    EQ(read(go, &byte, 1), 0);
    pthread_t id;
    OK(pthread_create(&id, NULL, thread, p));
    OK(pthread_join(id, NULL));
    check(p, CHILD_PAGES * PAGE, 4), check(inherited, PAGES * PAGE, 1);
}

static void sandboxed(void) {
    /* Of a container that forbids this, or of a user without rights, there is nothing to be seen. */
    if (unshare(CLONE_NEWUSER)) return;
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    char *p = fresh(PAGES);
    fill(p, PAGES * PAGE, 1), evict_some(p, PAGES * PAGE);
    pid_t mover = clone(move_root, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FS | SIGCHLD, p);
    int status = -1;
    EQ(waitpid(mover, &status, 0), mover), EQ(status, 0);
    CHECK(open("/etc/passwd", O_RDONLY) < 0);
    nothing_leads_out(proc), EQ(threads(), 1);
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2] = {{1 << CAP_SYS_ADMIN, 1 << CAP_SYS_ADMIN, 0}, {0, 0, 0}};
    OK(syscall(SYS_capset, &header, rights));
    nothing_leads_out(proc), EQ(threads(), 1);
    check(p, PAGES * PAGE, 1), evict_some(p, PAGES * PAGE);
    int go[2];
    OK(pipe(go));
    for (int i = 0; i < CHILDREN; i++) {
        int ready[2];
        OK(pipe(ready));
        pid_t pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            close(go[1]), main_pid = 1 << 30;
            child(p, ready[1], go[0]);
            _exit(0);
        }
        CHECK(pid > 0);
        OK(close(ready[1]));
        char byte;
        long came = read(ready[0], &byte, 1);
        OK(close(ready[0]));
        if (came == 0 && !forks) return;
        EQ(came, 1);
    }
    nothing_leads_out(proc), EQ(threads(), 1);
    close(go[1]);
    for (int i = 0; i < CHILDREN; i++) CHECK(waitpid(-1, &status, 0) > 0), EQ(status, 0);
    refuse_sockets();
    expect_exit(CHILD(check(p, PAGES * PAGE, 1)), 0);
    check(p, PAGES * PAGE, 1);
}

static void test(void) {
    forks = !opens_memory_by_name();
    proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(proc >= 0);
    expect_exit(CHILD(sandboxed()), 0);
    OK(close(proc));
}
BOTH_WAYS(test)
