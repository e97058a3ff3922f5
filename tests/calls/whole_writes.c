/* A write that waits is whole, also right after the process has given up rights, when the kernel ends what the runtime had for its files. */
#include "common.h"
#include <sys/prctl.h>

enum { BYTES = 16 << 20, PIECE_BYTES = 64 << 10 };

int main(void) {
    char *memory = fresh(BYTES / PAGE);
    noise(memory, BYTES, 1);
    for (int how = 0; how < 4; how++) {
        int ends[2];
        if (how % 2) OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        else OK(pipe(ends));
        evict(memory, BYTES);
        pid_t child = CHILD({
            static char piece[PIECE_BYTES];
            long all = 0, n;
            close(ends[1]);
            while ((n = read(ends[0], piece, sizeof piece)) > 0) all += n, usleep(300);
            EQ(all, BYTES);
        });
        OK(close(ends[0]));
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        struct iovec parts[2] = {{memory, BYTES / 2}, {memory + BYTES / 2, BYTES / 2}};
        EQ(how < 2 ? write(ends[1], memory, BYTES) : writev(ends[1], parts, 2), BYTES);
        OK(close(ends[1]));
        expect_exit(child, 0);
    }
    check_noise(memory, BYTES, 1);
    puts("ok");
    return 0;
}
