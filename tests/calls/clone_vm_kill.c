/* Two processes with one memory, made by clone(CLONE_VM): one is killed while it faults or makes calls, the other goes on.
 * First the child is killed, then the parent. */
#include "common.h"
#include <sys/prctl.h>

enum { PAGES = (40 << 20) / PAGE, ROUNDS = 100, STACK = 256 << 10 };
static char *shared, *mine, *stack;
static volatile unsigned long steps;
static int zero, null;

static void step(uint64_t *x, int way) {
    char *p = shared + (next_random(x) >> 8) % (PAGES - 8) * PAGE;
    if (way == 0)
        (*(volatile char *)p)++;
    else if (way == 1)
        syscall(SYS_read, zero, p + 100, 20000);
    else
        syscall(SYS_write, null, p + 100, 20000);
}
static int works_for_ever(void *arg) {
    uint64_t x = (long)arg * 77 + 1;
    for (;; steps++) step(&x, steps < 5 ? 0 : (long)arg % 3);
    return 0;
}
static void child_killed(void) {
    for (long round = 0; round < ROUNDS; round++) {
        unsigned long before = steps;
        pid_t pid = clone(works_for_ever, stack + STACK, CLONE_VM | SIGCHLD, (void *)round);
        CHECK(pid > 0);
        while (steps < before + 5) sched_yield();
        usleep(round * 31 % 3000);
        kill(pid, SIGKILL);
        expect_signal(pid, SIGKILL);
        for (size_t i = round % 16; i < PAGES; i += 16) (void)*(volatile char *)(shared + i * PAGE);
        if (round % 10 == 9) check_noise(mine, 1024 * PAGE, 1);
    }
    check_noise(mine, 1024 * PAGE, 1);
    noise(shared, PAGES * PAGE, 3), check_noise(shared, PAGES * PAGE, 3);
}
/* Goes on after its parent's end, with memory that only it writes. */
static int outlives(void *arg) {
    alarm(30);
    uint64_t x = (long)arg * 13 + 1;
    for (int i = 0; i < 200; i++) {
        noise(mine, 1024 * PAGE, i), check_noise(mine, 1024 * PAGE, i);
        (void)*(volatile char *)(shared + (next_random(&x) >> 8) % PAGES * PAGE);
        if (getppid() == *(pid_t *)(stack + 8) && i > 20) break;
    }
    syscall(SYS_exit_group, 5);
    return 0;
}
static void parent_killed(void) {
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    for (long round = 0; round < 8; round++) {
        int ends[2];
        OK(pipe(ends));
        pid_t grandparent = getpid(), parent = CHILD({
            *(pid_t *)(stack + 8) = grandparent;
            pid_t child = clone(outlives, stack + STACK, CLONE_VM | SIGCHLD, (void *)round);
            CHECK(child > 0);
            EQ(write(ends[1], &child, sizeof child), sizeof child);
            works_for_ever((void *)round);
        });
        pid_t child;
        EQ(read(ends[0], &child, sizeof child), sizeof child);
        usleep(20000 + round * 7919 % 20000);
        kill(parent, SIGKILL);
        expect_signal(parent, SIGKILL);
        int status;
        EQ(waitpid(child, &status, 0), child);
        /* Its own memory right to the end, or an end that says why: no memory that is missing, no hang. */
        if (WIFSIGNALED(status))
            CHECK(WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGKILL);
        else
            CHECK(WEXITSTATUS(status) == 5 || WEXITSTATUS(status) == 125);
        close(ends[0]), close(ends[1]);
    }
}
int main(void) {
    tmpdir();
    zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    CHECK(zero >= 0 && null >= 0);
    shared = fresh(PAGES), mine = fresh(1024);
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(stack != MAP_FAILED);
    for (size_t i = 0; i < PAGES; i++) *(volatile size_t *)(shared + i * PAGE) = i;
    noise(mine, 1024 * PAGE, 1);
    child_killed();
    parent_killed();
    puts("ok");
    return 0;
}
