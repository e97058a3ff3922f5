/* brk and sbrk. Nothing here may allocate meanwhile, so checks come after the break is back. */
#include "common.h"

static char *raw_break(void *to) { return (char *)syscall(SYS_brk, to); }

int main(void) {
    tmpdir();
    evict(place(1, 1), 1), (void)bad_in();
    for (raw_mode = 0; raw_mode < 2; raw_mode++) {
        char *start = raw_mode ? raw_break(NULL) : sbrk(0);
        char *p = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1));
        if (raw_mode)
            CHECK(raw_break(p + 512 * PAGE) == p + 512 * PAGE);
        else
            OK(brk(p + 512 * PAGE));
        check_zero(p, 512 * PAGE);
        fill(p, 512 * PAGE, 220), evict(p, 512 * PAGE), pressure(4), check(p, 512 * PAGE, 220);
        evict(p, 512 * PAGE);
        /* Down, and up again: the part in between is zero. */
        if (raw_mode)
            CHECK(raw_break(p + 256 * PAGE) == p + 256 * PAGE);
        else
            CHECK(sbrk(-256 * (long)PAGE) == p + 512 * PAGE);
        check(p, 256 * PAGE, 220);
        if (raw_mode)
            CHECK(raw_break(p + 512 * PAGE) == p + 512 * PAGE);
        else
            CHECK(sbrk(256 * (long)PAGE) == p + 256 * PAGE);
        check(p, 256 * PAGE, 220), check_zero(p + 256 * PAGE, 256 * PAGE);
        /* A pointer there as an argument. */
        int fd = open("f", O_RDWR | O_CREAT, 0600);
        evict(p, 512 * PAGE);
        EQ(CALL(pwrite64, fd, p, 256 * PAGE, 0L), 256 * PAGE),
            EQ(CALL(pread64, fd, p + 256 * PAGE, 256 * PAGE, 0L), 256 * PAGE);
        check(p + 256 * PAGE, 256 * PAGE, 220);
        close(fd);
        /* Out of reach: nothing changes. */
        if (raw_mode) {
            CHECK(raw_break((void *)(1UL << 47)) == p + 512 * PAGE);
            CHECK(raw_break(start) == start);
        } else {
            expect_errno(brk((void *)(1UL << 47)), ENOMEM);
            CHECK(sbrk(0) == p + 512 * PAGE);
            OK(brk(start));
        }
    }
    puts("ok");
    return 0;
}
