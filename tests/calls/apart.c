/* Threads that have descriptors and namespaces of their own: what only they had is gone when they have closed it, or have ended. A pipe's
 * reader sees its end, a lock is as the program left it, and memory comes and goes meanwhile. */
#include "common.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif
enum { AREA = 40 << 20 };
static char *area;

/* So much memory is touched and gone again that it takes whoever makes room for it. */
static void turn(void) { pressure(24), evict(area, 4 * MIB), check_noise(area, 4 * MIB, 1); }
static void range(int first, int last) { OK(syscall(SYS_close_range, first, last, CLOSE_RANGE_UNSHARE)); }
static int sees_end(int fd) {
    struct pollfd waits = {fd, POLLIN, 0};
    return poll(&waits, 1, 5000) == 1 && waits.revents == POLLHUP;
}

static void by_range(void) {
    int ends[2];
    OK(pipe(ends)), turn(), range(ends[1], ends[1]), EQ(sees_end(ends[0]), 1);
    OK(close(ends[0])), turn();
}

static int takes(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    return fcntl(fd, F_SETLK, &whole);
}
static void locked(void) {
    int fd = open("lock", O_RDWR | O_CREAT, 0600), again;
    CHECK(fd >= 0), OK(takes(fd)), turn(), range(500, 501);
    CHECK((again = open("lock", O_RDWR)) >= 0), OK(takes(again));
    /* To close any of its descriptors gives a file's locks up. */
    OK(close(again)), expect_exit(CHILD(OK(takes(fd))), 0), OK(close(fd)), turn();
}

static int go_on[2], unshared[2];
static void *has_its_own(void *how) {
    if (how) OK(unshare(CLONE_FILES));
    else range(500, 501);
    turn(), EQ(write(unshared[1], "u", 1), 1);
    char c;
    EQ(read(go_on[0], &c, 1), 1);
    return NULL;
}
static void in_thread(void *how) {
    int ends[2];
    char c;
    pthread_t t;
    OK(pipe(ends)), OK(pipe(go_on)), OK(pipe(unshared)), turn();
    OK(pthread_create(&t, NULL, has_its_own, how)), EQ(read(unshared[0], &c, 1), 1);
    OK(close(ends[1])), turn();
    struct pollfd waits = {ends[0], POLLIN, 0};
    EQ(poll(&waits, 1, 0), 0);
    EQ(write(go_on[1], "g", 1), 1), OK(pthread_join(t, NULL));
    EQ(sees_end(ends[0]), 1), turn();
    int *all[] = {go_on, unshared};
    for (int i = 0; i < 4; i++) OK(close(all[i / 2][i % 2]));
    OK(close(ends[0]));
}

/* One that shares the memory needs what the thread began that ends. */
static void *has_child(void *gone) {
    char *at = area;
    pid_t child = vfork();
    if (child == 0) {
        char c;
        if (read(*(int *)gone, &c, 1) != 1) _exit(2);
        for (size_t i = 0; i < AREA; i += PAGE)
            if (((volatile char *)at)[i] != ((volatile char *)at)[i]) _exit(3);
        _exit(0);
    }
    CHECK(child > 0);
    expect_exit(child, 0);
    return NULL;
}
static void beside_child(void) {
    int gone[2], ends[2];
    char c;
    pthread_t t, parent;
    OK(pipe(ends)), OK(pipe(gone)), OK(pipe(go_on)), OK(pipe(unshared)), turn();
    OK(pthread_create(&t, NULL, has_its_own, area)), EQ(read(unshared[0], &c, 1), 1);
    OK(pthread_create(&parent, NULL, has_child, gone)), sleep_ms(50);
    evict_some(area, AREA);
    EQ(write(go_on[1], "g", 1), 1), OK(pthread_join(t, NULL)), OK(close(ends[1]));
    EQ(write(gone[1], "e", 1), 1), OK(pthread_join(parent, NULL));
    EQ(sees_end(ends[0]), 1), turn();
    int *all[] = {gone, go_on, unshared};
    for (int i = 0; i < 6; i++) OK(close(all[i / 2][i % 2]));
    OK(close(ends[0]));
}

static char own_net[64];
static void *moves(void *arg) {
    if (unshare(CLONE_NEWNET)) return NULL;
    turn();
    CHECK(readlink("/proc/thread-self/ns/net", own_net, sizeof own_net - 1) > 0);
    return arg;
}
static void namespaces(void) {
    pthread_t t;
    turn(), OK(pthread_create(&t, NULL, moves, NULL)), OK(pthread_join(t, NULL));
    if (!own_net[0]) return;
    /* Without tasks it is a moment later. */
    int left = 1;
    for (int tries = 0; left && tries < 100; tries++) {
        char path[64], name[64] = "";
        left = 0;
        for (int tid = getpid(); tid < getpid() + 300; tid++) {
            snprintf(path, sizeof path, "/proc/self/task/%d/ns/net", tid);
            if (readlink(path, name, sizeof name - 1) > 0) left += strcmp(name, own_net) == 0;
        }
        if (left) sleep_ms(20);
    }
    EQ(left, 0), turn();
}

int main(void) {
    tmpdir();
    area = fresh(AREA / PAGE), noise(area, AREA, 1), evict(area, AREA);
    by_range(), locked(), in_thread(area), in_thread(NULL), beside_child(), namespaces();
    check_noise(area, AREA, 1);
    puts("ok");
    return 0;
}
