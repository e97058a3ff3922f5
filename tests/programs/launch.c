/* launch [--nobody] [--deny EPERM|ENOSYS|OLD] [--no-code] [--no-filters] [--no-clone3] [--no-proc] PROGRAM [ARGS...]: runs a program with fewer rights, as a
 * container would; OLD as those of some years ago did, and as systemd does that wants no calls of other processors;
 * --no-code as systemd's MemoryDenyWriteExecute. Exits with 124 where --no-proc is not possible. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    return 125;
}
static int become_nobody(void) {
    if (geteuid() == 0) {
        for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
            if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0)) return -1;
        if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return -1;
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}
/* From here on the filter says what is allowed. */
static int install(struct sock_filter *code, unsigned short len) {
    struct sock_fprog program = {len, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}
static int deny(int error, int is_old) {
    static const int calls[] = {SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
                                SYS_process_vm_readv, SYS_process_vm_writev};
    enum { CALLS = sizeof calls / sizeof *calls, OLD_CALLS = 2 };
    struct sock_filter code[CALLS * 2 + 4];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    if (is_old) {
        /* The calls of x32. */
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    for (int i = 0; i < (is_old ? CALLS : CALLS - OLD_CALLS); i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return install(code, n);
}
static int deny_code(void) {
    enum { EXEC = PROT_EXEC, BOTH = PROT_EXEC | PROT_WRITE };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, EXEC, 5, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, BOTH),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, BOTH, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(code, sizeof code / sizeof *code);
}
static int deny_call(int call) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(code, sizeof code / sizeof *code);
}
/* An empty directory over /proc, which nobody else sees. */
static int hide_proc(void) {
    if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS)) return -1;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return -1;
    return mount("none", "/proc", "tmpfs", 0, NULL);
}
int main(int argc, char **argv) {
    int i = 1;
    for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
        if (!strcmp(argv[i], "--nobody")) {
            if (become_nobody()) return failed("cannot become nobody");
        } else if (!strcmp(argv[i], "--deny") && i + 1 < argc) {
            const char *how = argv[++i];
            if (deny(!strcmp(how, "ENOSYS") ? ENOSYS : EPERM, !strcmp(how, "OLD"))) return failed("cannot install a filter");
        } else if (!strcmp(argv[i], "--no-code")) {
            if (deny_code()) return failed("cannot install a filter");
        } else if (!strcmp(argv[i], "--no-filters")) {
            if (deny_call(SYS_seccomp)) return failed("cannot install a filter");
        } else if (!strcmp(argv[i], "--no-clone3")) {
            if (deny_call(SYS_clone3)) return failed("cannot install a filter");
        } else if (!strcmp(argv[i], "--no-proc")) {
            if (hide_proc()) return failed("cannot hide /proc"), 124;
        } else {
            errno = EINVAL;
            return failed(argv[i]);
        }
    }
    if (i == argc) return 125;
    execvp(argv[i], argv + i);
    return failed(argv[i]);
}
