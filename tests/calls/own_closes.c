/* Every descriptor closed by instructions of the program's own, one by one, by a range and by others put in their place, in a child and then
 * in the program itself; and all memory locked so. What is evicted comes back as it was. */
#include "common.h"
#include "own_call.h"

enum { PAGES = 512 };
static char *area;

/* The highest that this may have, or what covers all that are there. */
static int last(void) {
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    return limit.rlim_cur < 1 << 16 ? (int)limit.rlim_cur : 1 << 16;
}
static void close_all(int way, int null) {
    if (way == 0)
        for (int fd = last(); fd > 2; fd--) RAW(close, fd, 0, 0);
    else if (way == 1)
        OK(RAW(close_range, 3, ~0u, 0));
    else
        for (int fd = last(); fd > null; fd--) way == 2 ? RAW(dup2, null, fd, 0) : RAW(dup3, null, fd, O_CLOEXEC);
}
static void goes_on(void) {
    evict(area, PAGES * PAGE), check(area, PAGES * PAGE, 1);
    char *other = fresh(PAGES);
    fill(other, PAGES * PAGE, 2), evict(other, PAGES * PAGE), check(other, PAGES * PAGE, 2);
    OK(munmap(other, PAGES * PAGE));
}

int main(void) {
    tmpdir();
    area = fresh(PAGES), fill(area, PAGES * PAGE, 1);
    for (int way = 0; way < 4; way++) {
        expect_exit(CHILD({
            int null = open("/dev/null", O_RDWR);
            CHECK(null >= 0 && null < 100);
            evict(area, PAGES * PAGE);
            close_all(way, null);
            goes_on();
            _exit(7);
        }), 7);
    }
    evict(area, PAGES * PAGE);
    close_all(0, -1), close_all(1, -1);
    goes_on();
    /* May be refused, plainly too; later memory is not locked. */
    long locked = RAW(mlockall, MCL_CURRENT | MCL_ONFAULT, 0, 0);
    CHECK(locked == 0 || locked == -ENOMEM || locked == -EPERM);
    check(area, PAGES * PAGE, 1);
    char *large = fresh(40 * 256);
    for (unsigned round = 0; round < 3; round++) {
        if (round > 0) check(large, 40 * 256 * PAGE, round);
        fill(large, 40 * 256 * PAGE, round + 1);
    }
    OK(RAW(munlockall, 0, 0, 0));
    goes_on();
    puts("ok");
    return 0;
}
