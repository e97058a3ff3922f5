/* Masks with the signals that the engine needs read as they were set, in any number of threads and processes, one after the
 * other; and whatever a mask says, memory that is out comes in. */
#include "common.h"
#include <spawn.h>

enum { CHILDREN = 300, THREADS = 600 };
extern char **environ;
static const int special[] = {SIGSEGV, SIGBUS, SIGSYS};

static char *area;

static int reads_as(int blocked) {
    evict(area, 4 * PAGE), check(area, 4 * PAGE, 1);
    sigset_t now;
    OK(pthread_sigmask(SIG_SETMASK, NULL, &now));
    for (int i = 0; i < 3; i++)
        if (sigismember(&now, special[i]) != blocked) return 0;
    return sigismember(&now, SIGUSR1) == blocked;
}
static void block(int how) {
    sigset_t all;
    sigfillset(&all);
    OK(pthread_sigmask(how, &all, NULL));
}
static void *thread(void *arg) {
    CHECK(reads_as(arg != NULL));
    block(SIG_BLOCK), CHECK(reads_as(1));
    block(SIG_UNBLOCK), CHECK(reads_as(0));
    if ((long)arg & 2) block(SIG_SETMASK), CHECK(reads_as(1));
    return arg;
}
static void threads(int blocked) {
    for (long i = 0; i < THREADS; i++) {
        pthread_t t;
        OK(pthread_create(&t, NULL, thread, (void *)(blocked ? i | 1 : 0))), OK(pthread_join(t, NULL));
    }
}
int main(void) {
    tmpdir();
    char *quick[] = {"true", NULL};
    area = fresh(4), fill(area, 4 * PAGE, 1);
    block(SIG_BLOCK);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid;
        if (i % 3 == 0) {
            OK(posix_spawn(&pid, "/bin/true", NULL, NULL, quick, environ)), expect_exit(pid, 0);
        } else if (i % 3 == 1) {
            pid = vfork();
            if (!pid) _exit(reads_as(1) ? 6 : 5);
            expect_exit(pid, 6);
        } else
            expect_exit(CHILD({ _exit(reads_as(1) ? 6 : 5); }), 6);
        CHECK(reads_as(1));
    }
    threads(1);
    block(SIG_UNBLOCK), CHECK(reads_as(0));
    threads(0);
    pthread_t t;
    block(SIG_BLOCK), OK(pthread_create(&t, NULL, thread, (void *)3)), OK(pthread_join(t, NULL)), CHECK(reads_as(1));
    puts("ok");
    return 0;
}
