/* process_vm_readv on a process that has just begun to evict, on one processor that others use as well: who serves it may not have run
 * yet. */
#include "common.h"
#include <linux/prctl.h>
#include <sched.h>
#include <sys/prctl.h>

/* A little more than a sixteenth of the limit: from there on there is somebody who serves. */
enum { PAGES_MIN = 526, PAGES_STEP = 2, ROUNDS = 16, BUSY = 4 };

static void one_processor(void) {
    cpu_set_t one;
    int cpu = sched_getcpu();
    CHECK(cpu >= 0);
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
}
static void one_round(unsigned round) {
    size_t pages = PAGES_MIN + PAGES_STEP * round, bytes = pages * PAGE;
    char *theirs = fresh(pages), *here = malloc(bytes), c = 1;
    int says[2], hears[2];
    CHECK(here), OK(pipe(says)), OK(pipe(hears));
    pid_t child = CHILD({
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        fill(theirs, bytes, round), evict_some(theirs, bytes);
        EQ(write(says[1], &c, 1), 1), close(hears[1]), read(hears[0], &c, 1);
    });
    EQ(read(says[0], &c, 1), 1);
    for (size_t done = 0; done < bytes;) {
        struct iovec local = {here + done, bytes - done}, remote = {theirs + done, bytes - done};
        ssize_t got = process_vm_readv(child, &local, 1, &remote, 1, 0);
        if (got <= 0) die("round %u: readv gave %zd, errno %d, after %zu", round, got, errno, done);
        done += got;
    }
    check(here, bytes, round);
    EQ(write(hears[1], &c, 1), 1);
    expect_exit(child, 0);
}
int main(int argc, char **argv) {
    pid_t busy[BUSY];
    char self[PATH_MAX], number[16];
    if (argc == 2) {
        one_round(atoi(argv[1]));
        return 0;
    }
    CHECK(realpath("/proc/self/exe", self));
    one_processor();
    for (int i = 0; i < BUSY; i++) busy[i] = CHILD({
        OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
        alarm(60);
        for (;;) getppid();
    });
    /* Each in a program that has used nothing yet. */
    for (unsigned round = 0; round < ROUNDS; round++) {
        sprintf(number, "%u", round);
        expect_exit(CHILD(execl(self, self, number, NULL)), 0);
    }
    for (int i = 0; i < BUSY; i++) OK(kill(busy[i], SIGKILL)), EQ(waitpid(busy[i], NULL, 0), busy[i]);
    puts("ok");
    return 0;
}
