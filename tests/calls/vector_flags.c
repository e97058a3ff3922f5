/* Flags of vectors of a regular file are taken, however long the vectors are, in a process in which many threads wait in calls. */
#include "waiters.h"
#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

/* From little more than one page for each of many waiters to more than what is made resident at once. */
static void flags(void) {
    static const size_t lengths[] = {9000, 30000, 60000, 1000000, 3 << 20};
    char *memory = fresh(1024), *back = fresh(1024);
    fill(memory, 1024 * PAGE, 9), begin_waiting();
    for (int n = 0; n < 5; n++) {
        size_t bytes = lengths[n], half = bytes / 2 + 123;
        struct iovec to[2] = {{memory, half}, {memory + half, bytes - half}}, from[2] = {{back, half}, {back + half, bytes - half}};
        int fd = open("flags", O_CREAT | O_TRUNC | O_RDWR, 0600);
        CHECK(fd >= 0);
        evict(memory, bytes), EQ(pwritev2(fd, to, 2, 0, RWF_DSYNC), bytes);
        evict(memory, bytes), EQ(pwritev2(fd, to, 2, 3, RWF_APPEND), bytes);
        EQ(lseek(fd, 0, SEEK_CUR), 0), EQ(lseek(fd, 0, SEEK_END), 2 * bytes);
        for (int half_of = 0; half_of < 2; half_of++) {
            memset(back, 0, bytes), evict(back, bytes);
            EQ(preadv2(fd, from, 2, half_of * bytes, RWF_DSYNC), bytes), check(back, bytes, 9);
        }
        OK(close(fd));
    }
    end_waiting(), OK(munmap(memory, 1024 * PAGE)), OK(munmap(back, 1024 * PAGE));
}

int main(void) {
    alarm(60), tmpdir(), pressure(40);
    flags();
    puts("ok");
    return 0;
}
