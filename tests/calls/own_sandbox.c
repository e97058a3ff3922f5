/* Programs that lock themselves in with a filter of their own, which knows nothing of who else works in them: what it does not list fails, is
 * handed to the program, or ends it. Their memory comes and goes as before, all of it, also in a child and in a thread. */
#include "roots.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { PAGES = 2048 };
static volatile sig_atomic_t handed;
/* Where a program under Outswap has no userfaultfd, a child would have to open its memory by name. */
static int may_refuse_fork;

static void refused(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    handed = info->si_syscall;
}

/* What such a program needs: reading and writing what is open, memory, threads, and ending; an allocator may look at what the machine has. */
static const int listed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_madvise, SYS_mincore, SYS_brk, SYS_exit, SYS_exit_group,
    SYS_fork, SYS_clone, SYS_wait4, SYS_set_robust_list, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_getpid, SYS_gettid, SYS_futex, SYS_rseq, SYS_clone3, SYS_mprotect, SYS_getrandom,
    SYS_rt_sigaction, SYS_access, SYS_prctl};

/* One that opens files, and gives descriptors other numbers in one way alone. */
static const int opening[] = {SYS_openat, SYS_close, SYS_fcntl, SYS_fstat, SYS_newfstatat, SYS_readlink, SYS_unlinkat, SYS_pread64,
    SYS_process_vm_readv, SYS_process_vm_writev};
static int opens_files;

static void lock_in(unsigned rest, int by_prctl) {
    enum { LISTED = sizeof listed / sizeof *listed, OPENING = sizeof opening / sizeof *opening };
    struct sock_filter code[2 * (LISTED + OPENING) + 8], *at = code;
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < LISTED; i++) {
        *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, listed[i], 0, 1);
        *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    for (int i = 0; opens_files && i < OPENING; i++) {
        *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, opening[i], 0, 1);
        *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    /* The one that the program tries. */
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_uname, 0, 1);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, rest == SECCOMP_RET_KILL_PROCESS ? SECCOMP_RET_ERRNO | EPERM : rest);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, rest);
    struct sock_fprog program = {at - code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (by_prctl) OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    else OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void use(char *p, unsigned seed) {
    for (int round = 0; round < 3; round++) {
        check(p, PAGES * PAGE, seed);
        evict_some(p, PAGES * PAGE);
        for (size_t i = 0; i < PAGES; i += 7) p[i * PAGE] ^= 1, p[i * PAGE] ^= 1;
    }
    char *other = fresh(PAGES);
    fill(other, PAGES * PAGE, seed + 1), evict_some(other, PAGES * PAGE);
    check(other, PAGES * PAGE, seed + 1);
    OK(munmap(other, PAGES * PAGE));
    check(p, PAGES * PAGE, seed);
}

static void *thread(void *p) {
    use(p, 1);
    return NULL;
}

static void locked_in(char *p, unsigned rest, int by_prctl) {
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSYS, &action, NULL));
    pthread_t id = 0;
    int pipe_of_thread[2];
    OK(pipe(pipe_of_thread));
    lock_in(rest, by_prctl);
    use(p, 1);
    char *buffer = fresh(4);
    evict_some(p, PAGE), memset(buffer, 7, 4 * PAGE), evict_some(buffer, 4 * PAGE);
    EQ(write(pipe_of_thread[1], buffer, 4 * PAGE), 4 * PAGE);
    evict_some(p, 4 * PAGE);
    EQ(read(pipe_of_thread[0], p, 4 * PAGE), 4 * PAGE);
    for (size_t i = 0; i < 4 * PAGE; i++) EQ(p[i], 7);
    fill(p, 4 * PAGE, 1);
    errno = 0;
    long uname = syscall(SYS_uname, buffer);
    if (rest == SECCOMP_RET_TRAP) {
        EQ(handed, SYS_uname);
        /* One that somebody else might take for his own affair. */
        syscall(SYS_sigaltstack, NULL, NULL), EQ(handed, SYS_sigaltstack);
        syscall(SYS_vfork), EQ(handed, SYS_vfork);
    } else {
        EQ(uname, -1), EQ(errno, EPERM);
    }
    OK(pthread_create(&id, NULL, thread, p));
    OK(pthread_join(id, NULL));
    pid_t child = fork();
    if (child == 0) {
        use(p, 1);
        _exit(0);
    }
    if (child < 0 && may_refuse_fork) {
        EQ(errno, EAGAIN);
    } else {
        int status = -1;
        EQ(waitpid(child, &status, 0), child), EQ(status, 0);
    }
    use(p, 1);
}

static void test(void) {
    may_refuse_fork = opens_memory_by_name();
    struct rlimit few;
    OK(getrlimit(RLIMIT_NOFILE, &few));
    few.rlim_cur = few.rlim_cur > 600 ? 600 : few.rlim_cur;
    OK(setrlimit(RLIMIT_NOFILE, &few));
    char *p = fresh(PAGES);
    fill(p, PAGES * PAGE, 1);
    static const unsigned rests[] = {SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_TRAP, SECCOMP_RET_KILL_PROCESS};
    for (opens_files = 0; opens_files < 2; opens_files++) {
        for (int i = 0; i < 3; i++) {
            evict_some(p, PAGES * PAGE);
            expect_exit(CHILD(locked_in(p, rests[i], i & 1)), 0);
        }
    }
}
BOTH_WAYS(test)
