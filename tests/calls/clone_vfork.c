/* clone(CLONE_VFORK) without CLONE_VM: the caller waits for the child, its other threads do not. A fork in another thread
 * goes ahead as well. */
#include "common.h"

enum { PAGES = (44 << 20) / PAGE, TURNS = 3 };
static char *area;
static int go[2], ready[2];

/* The child is let go only once this thread used memory that was evicted, made calls and forked. */
static void *works(void *arg) {
    char byte;
    EQ(read(ready[0], &byte, 1), 1);
    for (int turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < PAGES; i++) (*(volatile size_t *)(area + i * PAGE))++;
    int null = open("/dev/null", O_WRONLY);
    EQ(write(null, area, 1 << 20), 1 << 20);
    close(null);
    expect_exit(CHILD({ EQ(*(size_t *)area, TURNS + *(size_t *)(area + 8)); }), 0);
    OK(mprotect(area, 16 * PAGE, PROT_READ)), OK(mprotect(area, 16 * PAGE, PROT_READ | PROT_WRITE));
    EQ(write(go[1], "x", 1), 1);
    return arg;
}
static void child(void) {
    char byte;
    if (write(ready[1], "x", 1) != 1 || read(go[0], &byte, 1) != 1) _exit(3);
    /* A copy: what the other thread did meanwhile is not here. */
    for (size_t i = 0; i < PAGES; i += 7)
        if (*(volatile size_t *)(area + i * PAGE) != *(volatile size_t *)(area + i * PAGE + 8)) _exit(4);
    noise(area, 4 << 20, 1), check_noise(area, 4 << 20, 1);
    _exit(7);
}
int main(void) {
    tmpdir();
    area = fresh(PAGES);
    OK(pipe(go)), OK(pipe(ready));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < PAGES; i++) *(size_t *)(area + i * PAGE) = *(size_t *)(area + i * PAGE + 8) = i + round;
        pthread_t t;
        OK(pthread_create(&t, NULL, works, NULL));
        pid_t pid = syscall(SYS_clone, (round == 2 ? 0 : CLONE_VFORK) | SIGCHLD, 0L, NULL, NULL, 0L);
        if (pid == 0) child();
        CHECK(pid > 0);
        expect_exit(pid, 7);
        OK(pthread_join(t, NULL));
        for (size_t i = 0; i < PAGES; i++) EQ(*(size_t *)(area + i * PAGE), i + round + TURNS);
    }
    puts("ok");
    return 0;
}
