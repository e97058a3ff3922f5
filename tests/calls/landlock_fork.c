/* Who has locked itself out of all files forks, or is told that it cannot; a child that is there has its parent's memory. */
#include "common.h"
#include <linux/landlock.h>
#include <sys/prctl.h>

enum { AREA = 44 << 20 };

/* Of the calling thread alone. */
static int lock_in(void) {
    struct landlock_ruleset_attr rules = {
        .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    };
    int fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (fd < 0) return 0;
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(syscall(SYS_landlock_restrict_self, fd, 0));
    expect_errno(open("/proc/self/mem", O_RDWR), EACCES);
    return 1;
}
static void *locks_in(void *arg) {
    lock_in();
    return arg;
}

static void forks(char *area, int may_fail) {
    pid_t child = fork();
    if (child == 0) {
        check_noise(area, AREA, 1), noise(area, AREA, 2), check_noise(area, AREA, 2);
        _exit(7);
    }
    if (child > 0) expect_exit(child, 7);
    else CHECK(may_fail && errno == EAGAIN);
    check_noise(area, AREA, 1);
}
static void alone(char *area) {
    forks(area, lock_in());
}
static void in_a_thread(char *area) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, locks_in, NULL)), OK(pthread_join(thread, NULL));
    forks(area, 0);
}

int main(void) {
    char *area = fresh(AREA / PAGE);
    noise(area, AREA, 1);
    expect_exit(CHILD(alone(area)), 0);
    expect_exit(CHILD(in_a_thread(area)), 0);
    check_noise(area, AREA, 1);
    puts("ok");
    return 0;
}
