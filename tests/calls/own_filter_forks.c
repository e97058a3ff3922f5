/* A program whose own filter refuses calls that name its memory, with threads that write from structures in the heap while another forks: each
 * child ends, whatever the threads were at. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

enum { THREADS = 6, FORKS = 500, PATIENCE_S = 120 };

static void *writes(void *nothing) {
    int fd = open("/dev/null", O_WRONLY);
    struct iovec *iov = malloc(sizeof *iov);
    CHECK(fd >= 0 && iov);
    *iov = (struct iovec){malloc(8), 1};
    for (;;)
        CHECK(writev(fd, iov, 1) == 1);
    return nothing;
}

int main(void) {
    enum { PAGES = 2048, BYTES = PAGES * PAGE };
    char *bytes = fresh(PAGES);
    fill(bytes, BYTES, 1);
    evict(bytes, BYTES);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        OK(pthread_create(&thread, NULL, writes, NULL));
    }
    alarm(PATIENCE_S);
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(i % 100);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == i % 100);
    }
    check(bytes, BYTES, 1);
    puts("ok");
    fflush(stdout);
    _exit(0);
}
