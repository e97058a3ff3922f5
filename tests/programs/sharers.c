/* sharers N: while N other processes live that were forked from it, a process writes the same memory again and again. Prints
 * how much room the swap files that it holds have after each round, in MiB. */
#include "../calls/common.h"

enum { BYTES = 24 << 20, ROUNDS = 5 };

static long room_mib(void) {
    long blocks = 0;
    static struct stat seen[64];
    int known = 0;
    for (int i = 3; i < 5000; i++) {
        struct stat st;
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n <= 0 || stat(path, &st) || !S_ISREG(st.st_mode) || st.st_nlink) continue;
        target[n] = 0;
        int again = strstr(target, "memfd") != NULL;
        for (int k = 0; k < known; k++) again |= seen[k].st_ino == st.st_ino && seen[k].st_dev == st.st_dev;
        if (again || known == 64) continue;
        seen[known++] = st, blocks += st.st_blocks;
    }
    return blocks >> 11;
}
int main(int argc, char **argv) {
    CHECK(argc == 2);
    int others = atoi(argv[1]), hold[2];
    char *p = fresh(BYTES / PAGE);
    noise(p, BYTES, 9);
    OK(pipe(hold));
    for (int i = 0; i < others; i++) {
        pid_t pid = CHILD({
            char byte;
            close(hold[1]);
            if (read(hold[0], &byte, 1) != 0) _exit(3);
        });
        CHECK(pid > 0);
    }
    /* One of them, and a fork of that. */
    expect_exit(CHILD({
        close(hold[1]);
        for (int round = 0; round < ROUNDS; round++) {
            noise(p, BYTES, round), check_noise(p, BYTES, round);
            printf("%ld\n", room_mib());
        }
        fflush(stdout);
    }), 0);
    check_noise(p, BYTES, 9);
    close(hold[1]);
    for (int i = 0; i < others; i++) {
        int status;
        CHECK(wait(&status) > 0);
        EQ(status, 0);
    }
    puts("ok");
    return 0;
}
