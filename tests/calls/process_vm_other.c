/* process_vm_readv and process_vm_writev on another process, whose memory is evicted, in both directions at once, as libraries of
 * MPI pass messages on. */
#include "common.h"
#include <linux/prctl.h>
#include <sys/prctl.h>

enum { PAGES = 3072 };
#define BYTES (PAGES * PAGE)

static char *mine, *theirs;
static int to_other[2], from_other[2];

static void step(int says, int hears) {
    char c = 1;
    EQ(write(says, &c, 1), 1), EQ(read(hears, &c, 1), 1);
}
/* Moves n bytes in as many calls as it takes: each may do less, but none fails. */
static void move(int writes, pid_t other, char *here, char *there, size_t n) {
    for (size_t done = 0; done < n;) {
        struct iovec local[3], remote[2];
        size_t left = n - done, part = left / 3;
        local[0] = (struct iovec){here + done, part}, local[1] = (struct iovec){here + done + part, 0};
        local[2] = (struct iovec){here + done + part, left - part};
        remote[0] = (struct iovec){there + done, left / 2}, remote[1] = (struct iovec){there + done + left / 2, left - left / 2};
        ssize_t got = writes ? process_vm_writev(other, local, 3, remote, 2, 0) : process_vm_readv(other, local, 3, remote, 2, 0);
        if (got <= 0) die("%s gave %zd, errno %d, after %zu of %zu", writes ? "writev" : "readv", got, errno, done, n);
        done += got;
    }
}
/* Both sides do this; memory lies at the same addresses in both. `seed` of this side, `other_seed` of the other. */
static void side(pid_t other, unsigned seed, unsigned other_seed, int says, int hears) {
    for (int round = 0; round < 3; round++) {
        fill(mine, BYTES, seed + round), memset(theirs, 0, BYTES), evict_some(mine, BYTES), evict_some(theirs, BYTES);
        step(says, hears);
        move(0, other, theirs, mine, BYTES);
        check(theirs, BYTES, other_seed + round);
        step(says, hears);
        /* And into the other's memory, while it looks at what it has. */
        fill(mine, BYTES, seed + 100 + round), evict_some(mine, BYTES);
        step(says, hears);
        move(1, other, mine, theirs, BYTES);
        check(mine, BYTES, seed + 100 + round);
        step(says, hears);
        check(theirs, BYTES, other_seed + 100 + round);
        /* What nobody has. */
        struct iovec a = {theirs, PAGE}, b = {(void *)8, PAGE};
        expect_errno(process_vm_readv(other, &a, 1, &b, 1, 0), EFAULT);
        expect_errno(process_vm_writev(other, &a, 1, &b, 1, 0), EFAULT);
        a.iov_base = (void *)8, b.iov_base = mine;
        expect_errno(process_vm_readv(other, &a, 1, &b, 1, 0), EFAULT);
        step(says, hears);
    }
}
/* Who reads is killed in the middle: what was kept for it can go again, and the next one is served. */
static void killed(void) {
    pid_t parent = getpid();
    for (int round = 0; round < 12; round++) {
        fill(mine, BYTES, round), evict_some(mine, BYTES);
        pid_t child = CHILD({
            for (;;) move(round % 3 == 0, parent, theirs, round % 3 == 0 ? theirs : mine, BYTES);
        });
        sleep_ms(5 + 7 * round);
        OK(kill(child, SIGKILL));
        EQ(waitpid(child, NULL, 0), child);
        check(mine, BYTES, round);
    }
    evict(mine, BYTES), check(mine, BYTES, 11);
}
int main(void) {
    mine = fresh(PAGES), theirs = fresh(PAGES);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    OK(pipe(to_other)), OK(pipe(from_other));
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (!child) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        side(parent, 20, 10, from_other[1], to_other[0]);
        _exit(0);
    }
    side(child, 10, 20, to_other[1], from_other[0]);
    expect_exit(child, 0);
    /* Nobody is there any more. */
    struct iovec a = {mine, PAGE}, b = {theirs, PAGE};
    expect_errno(process_vm_readv(child, &a, 1, &b, 1, 0), ESRCH);
    killed();
    puts("ok");
}
