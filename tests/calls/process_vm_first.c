/* process_vm_writev on a process that evicts for the first time just then: what was written, as the call said, is there. */
#include "common.h"
#include <linux/prctl.h>
#include <sys/prctl.h>

enum { PAGES = 64, ROUNDS = 64 };
#define WORDS (PAGES * PAGE / sizeof(long))

/* Each in a program that has evicted nothing yet. Pages that are out, and that nobody is there to bring in, cannot be written to. */
static void one_round(int round) {
    static long here[WORDS];
    long *area = (long *)fresh(PAGES), said = 0;
    int says[2], hears[2];
    char c = 1;
    OK(pipe(says)), OK(pipe(hears));
    pid_t child = CHILD({
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        for (size_t i = 0; i < WORDS; i++) area[i] = 0;
        EQ(write(says[1], &c, 1), 1);
        struct timespec until, now;
        clock_gettime(CLOCK_MONOTONIC, &until);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - until.tv_sec) * 1000000000L + now.tv_nsec - until.tv_nsec < 200000 + round * 7919L);
        evict_some(area, PAGES * PAGE);
        EQ(read(hears[0], &said, sizeof said), sizeof said);
        for (size_t i = 0; i < WORDS; i++) if (area[i] < said) die("round %d: word %zu is %ld, not %ld", round, i, area[i], said);
    });
    EQ(read(says[0], &c, 1), 1);
    for (long n = 1; n < 400; n++) {
        for (size_t i = 0; i < WORDS; i++) here[i] = n;
        struct iovec local = {here, sizeof here}, remote = {area, sizeof here};
        ssize_t got = process_vm_writev(child, &local, 1, &remote, 1, 0);
        if (got != sizeof here) {
            if (got < 0) EQ(errno, EFAULT);
            break;
        }
        said = n;
    }
    EQ(write(hears[1], &said, sizeof said), sizeof said);
    expect_exit(child, 0);
}
int main(int argc, char **argv) {
    char self[PATH_MAX], number[16];
    if (argc == 2) {
        one_round(atoi(argv[1]));
        return 0;
    }
    CHECK(realpath("/proc/self/exe", self));
    for (int round = 0; round < ROUNDS; round++) {
        sprintf(number, "%d", round);
        expect_exit(CHILD(execl(self, self, number, NULL)), 0);
    }
    puts("ok");
    return 0;
}
