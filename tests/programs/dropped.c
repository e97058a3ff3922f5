/* Gives up its rights in the ways that programs do, and forks, executes and works on after each. */
#include "../calls/common.h"
#include <grp.h>
#include <sys/prctl.h>

enum { BYTES = 40 << 20 };
static char *area;

static void goes_on(void) {
    check_noise(area, BYTES, 1);
    expect_exit(CHILD({
        check_noise(area, BYTES, 1);
        noise(area, BYTES, 2), check_noise(area, BYTES, 2);
        expect_exit(CHILD({ check_noise(area, BYTES, 2); }), 0);
        execl("/bin/true", "true", NULL);
        _exit(9);
    }), 0);
    check_noise(area, BYTES, 1);
}
int main(void) {
    for (int way = 0; way < 4; way++)
        expect_exit(CHILD({
            area = fresh(BYTES / PAGE);
            noise(area, BYTES, 1);
            if (geteuid() == 0) {
                if (way != 3) OK(setgroups(0, NULL)), OK(setgid(65534));
                if (way == 1)
                    OK(setresuid(65534, 65534, 0));
                else if (way == 3)
                    OK(seteuid(65534));
                else
                    OK(setuid(65534));
            }
            if (way == 2) OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)), OK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
            goes_on();
        }), 0);
    puts("ok");
    return 0;
}
