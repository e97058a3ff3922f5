/* A process that gives up its rights has nothing left with which to change what its children, who keep theirs, had of it. */
#include "common.h"
#include <grp.h>

enum { HEAP = 60 << 20, JUNK = 256 << 10 };

enum { FDS = 4096 };
static ino_t before[FDS];

/* Whether this process can write to a file without a name that it did not open. */
static int hidden(int fd, struct stat *st) {
    /* By its name: a descriptor of the runtime's says that it is none. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return !stat(path, st) && S_ISREG(st->st_mode) && !st->st_nlink && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}
static void remember(void) {
    struct stat st;
    for (int fd = 3; fd < FDS; fd++) before[fd] = hidden(fd, &st) ? st.st_ino : 0;
}
/* Only what was there before: a file that nobody else reads is the process's own affair. */
static void overwrite_remembered(void) {
    static char junk[JUNK];
    memset(junk, 0x55, sizeof junk);
    for (int fd = 3; fd < FDS; fd++) {
        struct stat st;
        if (!hidden(fd, &st) || st.st_ino != before[fd]) continue;
        for (off_t at = 0; at < st.st_size; at += JUNK) (void)!pwrite(fd, junk, sizeof junk, at);
    }
}
static void drop(void) {
    OK(setgroups(0, NULL)), OK(setresgid(65534, 65534, 65534)), OK(setresuid(65534, 65534, 65534));
}
int main(void) {
    alarm(60);
    char *area = fresh(HEAP / PAGE);
    noise(area, HEAP, 1);
    int go[2];
    OK(pipe(go));
    pid_t helper = CHILD({
        char byte;
        EQ(read(go[0], &byte, 1), 1);
        check_noise(area, HEAP, 1);
    });
    /* Who has no rights to give up can do to a child of the same user whatever it likes. */
    if (!getuid()) remember(), drop(), overwrite_remembered();
    EQ(write(go[1], "x", 1), 1);
    expect_exit(helper, 0);
    puts("ok");
    return 0;
}
