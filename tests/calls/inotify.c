/* inotify_add_watch, and reading its events. */
#include "common.h"
#include <sys/inotify.h>

static void test(void) {
    int fd = inotify_init1(IN_NONBLOCK);
    CHECK(fd >= 0);
    int w = CALL(inotify_add_watch, fd, str("."), IN_CREATE | IN_DELETE);
    CHECK(w >= 0);
    make_file("watched-name", 1, 1), OK(unlink("watched-name"));
    struct inotify_event *e = place(4 * PAGE, 16);
    long n = CALL(read, fd, e, 4 * PAGE);
    CHECK(n > 0), EQ(e->wd, w), OK(strcmp(e->name, "watched-name")), EQ(e->mask, IN_CREATE);
    EFAULT_IN(p, CALL(inotify_add_watch, fd, p, IN_CREATE));
    EFAULT_EDGE(p, CALL(inotify_add_watch, fd, p, IN_CREATE));
    expect_errno(CALL(inotify_add_watch, fd, str("absent"), IN_CREATE), ENOENT);
    expect_errno(CALL(inotify_add_watch, -1, str("."), IN_CREATE), EBADF);
    close(fd);
}
BOTH_WAYS(test)
