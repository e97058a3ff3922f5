/* A child that does not run for a while after its fork, as where other work keeps the processors busy: its parent is traced, so that the
 * child stops where it begins. Meanwhile the parent writes to new memory. Prints the most that both had together, in KiB. */
#include "../calls/common.h"
#include <sys/ptrace.h>

enum { BEFORE = (90 << 20) / PAGE, AFTER = (60 << 20) / PAGE, LOOK_NS = 10000000, WHILE_NS = 800000000 };

static long pss_kib(pid_t pid) {
    char line[256];
    long kib = 0;
    snprintf(line, sizeof line, "/proc/%d/smaps_rollup", pid);
    FILE *file = fopen(line, "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) sscanf(line, "Pss_Anon: %ld", &kib);
    OK(fclose(file));
    return kib;
}
static void parent(void) {
    OK(ptrace(PTRACE_TRACEME, 0, 0, 0)), OK(raise(SIGSTOP));
    char *p = fresh(BEFORE), *q = fresh(AFTER);
    noise(p, BEFORE * PAGE, 1);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(0);
    noise(q, AFTER * PAGE, 2);
    noise_at(__FILE__, __LINE__, p, BEFORE * PAGE, 1), noise_at(__FILE__, __LINE__, q, AFTER * PAGE, 2);
    _exit(0);
}
int main(void) {
    pid_t pid = fork(), child = 0;
    if (pid == 0) parent();
    int status;
    EQ(waitpid(pid, &status, 0), pid), CHECK(WIFSTOPPED(status));
    OK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL));
    OK(ptrace(PTRACE_CONT, pid, 0, 0));
    long most = 0, looks = 0, forked_ns = 0, looked_ns = 0;
    for (pid_t who; (who = waitpid(-1, &status, __WALL)) > 0;) {
        if (who != pid) {
            child = who;
            continue;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) break;
        int signal = WSTOPSIG(status), is_fork = status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8);
        long now = now_ns();
        if (is_fork) forked_ns = now;
        if (child && now - forked_ns < WHILE_NS && now - looked_ns > LOOK_NS) {
            long kib = pss_kib(pid) + pss_kib(child);
            /* Read while the child was to be counted. */
            if (now_ns() - forked_ns < WHILE_NS && kib > most) most = kib;
            looks++, looked_ns = now_ns();
        }
        OK(ptrace(PTRACE_CONT, pid, 0, (long)(is_fork ? 0 : signal)));
    }
    CHECK(WIFEXITED(status)), EQ(WEXITSTATUS(status), 0);
    CHECK(child > 0);
    OK(kill(child, SIGKILL));
    EQ(waitpid(child, &status, __WALL), child);
    printf("%ld %ld\n", most, looks);
    return 0;
}
