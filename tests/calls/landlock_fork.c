/* Who has locked itself out of all files forks, or is told that it cannot; a child that is there has its parent's memory. */
#include "common.h"
#include <linux/landlock.h>
#include <sys/prctl.h>

enum { AREA = 44 << 20 };

static void locked(char *area) {
    struct landlock_ruleset_attr rules = {
        .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    };
    int fd = syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (fd < 0) return;
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(syscall(SYS_landlock_restrict_self, fd, 0));
    expect_errno(open("/proc/self/mem", O_RDWR), EACCES);
    pid_t child = fork();
    if (child == 0) {
        check_noise(area, AREA, 1), noise(area, AREA, 2), check_noise(area, AREA, 2);
        _exit(7);
    }
    if (child > 0) expect_exit(child, 7);
    else EQ(errno, EAGAIN);
    check_noise(area, AREA, 1);
}

int main(void) {
    char *area = fresh(AREA / PAGE);
    noise(area, AREA, 1);
    expect_exit(CHILD(locked(area)), 0);
    check_noise(area, AREA, 1);
    puts("ok");
    return 0;
}
