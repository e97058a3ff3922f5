/* clone(CLONE_VFORK) without CLONE_VM: the caller waits for the child, its other threads do not. A fork in another thread
 * goes ahead as well. Nobody but the child is waited for: neither its own children, nor those of other threads. */
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
/* Children that live until they may end. */
static int lives[2];
static pid_t lasting(void) {
    char byte;
    return CHILD({ close(lives[1]), read(lives[0], &byte, 1); });
}
enum { LASTING = 8 };
static pid_t others[LASTING];
static void *forks(void *arg) {
    for (int i = 0; i < LASTING; i++) others[i] = lasting();
    return arg;
}
static void is_not_held_up(void) {
    OK(pipe(lives));
    pid_t pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0L, NULL, NULL, 0L);
    if (pid == 0) lasting(), _exit(5);
    expect_exit(pid, 5);
    pthread_t t;
    OK(pthread_create(&t, NULL, forks, NULL));
    for (int i = 0; i < LASTING; i++) {
        pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0L, NULL, NULL, 0L);
        if (pid == 0) _exit(6);
        expect_exit(pid, 6);
    }
    OK(pthread_join(t, NULL));
    close(lives[1]);
    for (int i = 0; i < LASTING; i++) expect_exit(others[i], 0);
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
    is_not_held_up();
    puts("ok");
    return 0;
}
