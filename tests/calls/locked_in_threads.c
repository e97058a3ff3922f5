/* A program that locks itself in by a filter which ends it for what nobody needs who only makes threads: writing to files at a place, making memory
 * executable, opening files. Then it makes threads, more than before. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { THREADS = 100 };
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IF(nr, ...) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static struct locks {
    pthread_mutex_t mutex;
    pthread_cond_t came;
    int count;
} *l;
static void *comes(void *all) {
    OK(pthread_mutex_lock(&l->mutex));
    l->count++;
    OK(pthread_cond_broadcast(&l->came));
    while (l->count < *(int *)all) OK(pthread_cond_wait(&l->came, &l->mutex));
    OK(pthread_mutex_unlock(&l->mutex));
    return NULL;
}
static void threads(int count) {
    pthread_t t[THREADS];
    l->count = 0;
    for (int i = 0; i < count; i++) OK(pthread_create(&t[i], NULL, comes, &count));
    for (int i = 0; i < count; i++) OK(pthread_join(t[i], NULL));
}
static void locked_in(int before) {
    struct sock_filter ops[] = {
        NUMBER,
        IF(SYS_pwrite64), IF(SYS_memfd_create), IF(SYS_open), IF(SYS_openat), IF(SYS_execve),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof ops / sizeof *ops, ops};
    threads(before);
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)), OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    evict(l, sizeof *l);
    threads(1), threads(THREADS);
    pressure(48);
    threads(THREADS);
}

int main(void) {
    l = (struct locks *)fresh(1);
    OK(pthread_mutex_init(&l->mutex, NULL)), OK(pthread_cond_init(&l->came, NULL));
    /* The filter is for the thread that installs it, and those that it makes. */
    for (int before = 0; before <= 1; before++) expect_exit(CHILD(locked_in(before)), 0);
    puts("ok");
    return 0;
}
