/* What an executed or forked program inherits, and how processes end: signal masks, a lowered limit of descriptors, a main
 * thread that ends first, a last thread that ends by itself. */
#include "common.h"

enum { PAGES = 512, MANY = 5000 };

static char *mine;

static void print_mask(const char *who) {
    char line[256];
    FILE *f = fopen("/proc/thread-self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "SigBlk", 6)) printf("%s %s", who, line);
    fclose(f);
    fflush(stdout);
}

static void *worker(void *leader) {
    pthread_join(*(pthread_t *)leader, NULL);
    char *p = fresh(PAGES);
    fill(p, PAGES * PAGE, 5), evict(p, PAGES * PAGE), evict(mine, PAGES * PAGE);
    int fds[2];
    OK(pipe(fds));
    struct iovec *vec = (struct iovec *)fresh(1);
    vec[0] = (struct iovec){mine, 3000}, vec[1] = (struct iovec){p, 3000};
    evict(vec, PAGE);
    EQ(writev(fds[1], vec, 2), 6000);
    char *q = fresh(2);
    evict(q, 2 * PAGE);
    EQ(read(fds[0], q, 6000), 6000);
    CHECK(!memcmp(q, mine, 3000) && !memcmp(q + 3000, p, 3000));
    sigset_t *set = (sigset_t *)fresh(1);
    evict(set, PAGE);
    OK(pthread_sigmask(SIG_BLOCK, NULL, set));
    pid_t pid = fork();
    if (!pid) {
        check(mine, PAGES * PAGE, 1);
        _exit(0);
    }
    expect_exit(pid, 0);
    exit(0);
}

int main(int argc, char **argv) {
    char self[PATH_MAX];
    CHECK(realpath("/proc/self/exe", self));
    if (argc == 3 && !strcmp(argv[1], "mask")) {
        print_mask(argv[2]);
        if (!strcmp(argv[2], "first")) execl(self, self, "mask", "second", NULL);
        return 0;
    }
    if (argc == 2) {
        char *p = fresh(PAGES);
        fill(p, PAGES * PAGE, 3), evict(p, PAGES * PAGE), check(p, PAGES * PAGE, 3);
        return 4;
    }
    tmpdir();
    mine = fresh(PAGES);
    fill(mine, PAGES * PAGE, 1), evict(mine, PAGES * PAGE);

    /* The mask that the program set is the mask of what it executes. */
    for (int blocked = 0; blocked < 2; blocked++) {
        sigset_t set;
        sigemptyset(&set);
        if (blocked) sigaddset(&set, SIGUSR1), sigaddset(&set, SIGTERM);
        OK(sigprocmask(SIG_SETMASK, &set, NULL));
        pid_t pid = fork();
        if (!pid) {
            execl(self, self, "mask", "first", NULL);
            _exit(99);
        }
        expect_exit(pid, 0);
        pid = vfork();
        if (!pid) {
            execl(self, self, "mask", "vforked", NULL);
            _exit(99);
        }
        expect_exit(pid, 0);
    }
    print_mask("self");

    /* So few descriptors that ours are out of bounds. */
    struct rlimit old, few = {64, 64};
    pid_t pid = fork();
    if (!pid) {
        OK(getrlimit(RLIMIT_NOFILE, &old));
        OK(setrlimit(RLIMIT_NOFILE, &few));
        pid_t inner = fork();
        if (!inner) {
            check(mine, PAGES * PAGE, 1);
            execl(self, self, "run", NULL);
            _exit(99);
        }
        expect_exit(inner, 4);
        check(mine, PAGES * PAGE, 1);
        _exit(0);
    }
    expect_exit(pid, 0);

    /* A last thread that ends by itself ends the process. */
    pid = fork();
    if (!pid) {
        char *p = fresh(MANY);
        fill(p, MANY * PAGE, 2), check(p, MANY * PAGE, 2);
        syscall(SYS_exit, 7);
    }
    expect_exit(pid, 7);

    /* The main thread ends before the others. */
    pid = fork();
    if (!pid) {
        static pthread_t leader, thread;
        leader = pthread_self();
        OK(pthread_create(&thread, NULL, worker, &leader));
        pthread_exit(NULL);
    }
    expect_exit(pid, 0);
    check(mine, PAGES * PAGE, 1);
    puts("ok");
    return 0;
}
