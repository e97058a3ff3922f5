/* Calls on processes: ptrace, kcmp, pidfd_send_signal, segments, pages on nodes, and confinement that is refused. */
#include "alike.h"
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <elf.h>
#include <linux/kcmp.h>
#include <linux/landlock.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/user.h>

static void traced(void) {
    pid_t child = fork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(1);
        raise(SIGSTOP);
        _exit(5);
    }
    int status;
    EQ(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) return;
    struct user_regs_struct *r[2];
    OK(ALIKE(syscall(SYS_ptrace, PTRACE_GETREGS, child, 0, r[in_evicted] = zeros(sizeof **r))));
    OK(memcmp(r[0], r[1], sizeof **r));
    struct user_regs_struct all = *r[1];
    for (int evicted = 0; evicted < 2; evicted++)
        OK(ALIKE(({
            struct iovec part = {zeros(sizeof **r), sizeof **r};
            int turn = in_evicted;
            in_evicted = evicted;
            long got = syscall(SYS_ptrace, PTRACE_GETREGSET, child, NT_PRSTATUS, in(&part, sizeof part));
            in_evicted = turn;
            OK(memcmp(part.iov_base, &all, sizeof all));
            got;
        })));
    struct iovec bad = {bad_out()[2], sizeof **r};
    BAD(syscall(SYS_ptrace, PTRACE_GETREGSET, child, NT_PRSTATUS, &bad));
    ALIKE(syscall(SYS_ptrace, PTRACE_GETSIGINFO, child, 0, zeros(128)));
    ALIKE(syscall(SYS_ptrace, PTRACE_PEEKDATA, child, all.rsp & ~7UL, zeros(8)));
    OK(ptrace(PTRACE_DETACH, child, 0, 0));
    expect_exit(child, 5);
}
int main(void) {
    tmpdir();
    traced();
    int poll_fd = epoll_create1(0), pipes[2];
    OK(pipe(pipes));
    OK(epoll_ctl(poll_fd, EPOLL_CTL_ADD, pipes[0], &(struct epoll_event){.events = EPOLLIN}));
    ALIKE(syscall(SYS_kcmp, getpid(), getpid(), KCMP_EPOLL_TFD, pipes[0], THE(struct kcmp_epoll_slot, poll_fd, pipes[0], 0)));
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    if (self >= 0) {
        signal(SIGUSR1, SIG_IGN);
        OK(ALIKE(syscall(SYS_pidfd_send_signal, self, SIGUSR1, THE(siginfo_t, .si_signo = SIGUSR1, .si_code = SI_QUEUE), 0)));
        BAD(syscall(SYS_pidfd_send_signal, self, SIGUSR1, bad_in()[2], 0));
        close(self);
    }
    unsigned long *fs[2];
    OK(ALIKE(syscall(SYS_arch_prctl, ARCH_GET_FS, fs[in_evicted] = zeros(8))));
    EQ(*fs[0], *fs[1]);
    BAD(syscall(SYS_arch_prctl, ARCH_GET_FS, bad_out()[2]));
    ALIKE(syscall(SYS_modify_ldt, 0, zeros(4096), 4096));
    ALIKE(syscall(SYS_modify_ldt, 1, THE(struct user_desc, .entry_number = 99999), sizeof(struct user_desc)));
    ALIKE(syscall(SYS_set_thread_area, zeros(16)));
    ALIKE(syscall(SYS_get_thread_area, zeros(16)));
    static char here[2 * PAGE] __attribute__((aligned(4096)));
    memset(here, 1, sizeof here);
    void *pages[2] = {here, here + PAGE};
    int *nodes[2];
    if (!ALIKE(syscall(SYS_move_pages, 0, 2, in(pages, sizeof pages), NULL, nodes[in_evicted] = zeros(8), 0))) {
        OK(memcmp(nodes[0], nodes[1], 8));
        BAD(syscall(SYS_move_pages, 0, 2, bad_in()[2], NULL, nodes[0], 0));
    }
    ALIKE(syscall(SYS_migrate_pages, 0, 64, THE(unsigned long, 1), THE(unsigned long, 1)));
    long rules = ALIKE_FD(
        syscall(SYS_landlock_create_ruleset, THE(struct landlock_ruleset_attr, LANDLOCK_ACCESS_FS_EXECUTE), 8, 0));
    if (rules >= 0) {
        int root = open("/", O_PATH);
        OK(ALIKE(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH,
            THE(struct landlock_path_beneath_attr, LANDLOCK_ACCESS_FS_EXECUTE, root), 0)));
        BAD(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, bad_in()[2], 0));
        close(root);
    }
    enum { LSM_GET = 459, LSM_SET, LSM_LIST };
    ALIKE(syscall(LSM_LIST, zeros(800), THE(uint32_t, 800), 0));
    ALIKE(syscall(LSM_GET, 100, zeros(4096), THE(uint32_t, 4096), 0));
    ALIKE(syscall(LSM_SET, 100, zeros(64), 32, 0));
    /* Of the machine's owner: none of these names is there, and no image is one. */
    ALIKE(syscall(SYS_acct, text("absent")));
    ALIKE(syscall(SYS_swapon, text("absent"), 0));
    ALIKE(syscall(SYS_swapoff, text("absent")));
    ALIKE(syscall(SYS_reboot, 1, 2, 3, text("no")));
    ALIKE(syscall(SYS_init_module, zeros(256), 256, text("")));
    ALIKE(syscall(SYS_finit_module, -1, text(""), 0));
    ALIKE(syscall(SYS_delete_module, text("outswap-none"), O_NONBLOCK));
    ALIKE(syscall(SYS_kexec_load, 0, 999, zeros(32), 0));
    ALIKE(syscall(SYS_kexec_file_load, -1, -1, 3, text("no"), 0));
    puts("ok");
    return 0;
}
