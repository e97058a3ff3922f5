/* Children that borrow this process's memory are killed while they fault and while they make calls: this process goes on,
 * with all that it wrote. */
#include "common.h"

enum { PAGES = (40 << 20) / PAGE, ROUNDS = 120 };
static char *shared, *mine;
static volatile pid_t victim;
static volatile unsigned long steps;
static volatile int stop;
static int zero, null;

/* Kills each child a little after its first steps. */
static void *killer(void *arg) {
    uint64_t x = 99;
    while (!stop) {
        pid_t pid = victim;
        if (pid == 0 || steps < 5) {
            sched_yield();
            continue;
        }
        usleep(next_random(&x) % 3000);
        victim = 0, steps = 0;
        kill(pid, SIGKILL);
    }
    return arg;
}
/* Whatever the child writes goes to pages of its own. */
static void work(uint64_t x, int way) {
    for (;; steps++) {
        char *p = shared + (next_random(&x) >> 8) % (PAGES - 8) * PAGE;
        if (way == 0 || steps < 5)
            (*(volatile char *)p)++;
        else if (way == 1)
            syscall(SYS_read, zero, p + 100, 20000);
        else if (way == 2)
            syscall(SYS_write, null, p + 100, 20000);
        else {
            struct iovec two[2] = {{p, 100}, {p + 3 * PAGE, 9000}};
            syscall(SYS_readv, zero, two, 2);
        }
    }
}
int main(void) {
    tmpdir();
    zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    CHECK(zero >= 0 && null >= 0);
    shared = fresh(PAGES), mine = fresh(1024);
    for (size_t i = 0; i < PAGES; i++) *(volatile size_t *)(shared + i * PAGE) = i;
    noise(mine, 1024 * PAGE, 1);
    pthread_t t;
    OK(pthread_create(&t, NULL, killer, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = vfork();
        if (!pid) {
            victim = getpid();
            work(round * 77 + 1, round % 4);
            _exit(9);
        }
        expect_signal(pid, SIGKILL);
        for (size_t i = round % 16; i < PAGES; i += 16) (void)*(volatile char *)(shared + i * PAGE);
        if (round % 10 == 9) check_noise(mine, 1024 * PAGE, 1);
    }
    stop = 1;
    OK(pthread_join(t, NULL));
    check_noise(mine, 1024 * PAGE, 1);
    /* All of it can still be used, by every call. */
    noise(shared, PAGES * PAGE, 3), check_noise(shared, PAGES * PAGE, 3);
    EQ(pread(zero, shared, PAGES * PAGE, 0), PAGES * PAGE), check_zero(shared, 64 * PAGE);
    expect_exit(CHILD({ check_zero(shared, 64 * PAGE), check_noise(mine, 1024 * PAGE, 1); }), 0);
    puts("ok");
    return 0;
}
