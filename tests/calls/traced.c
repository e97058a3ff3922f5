/* As a debugger does: a vforked child asks to be traced and executes a program, which is let go on, with all signals that come. */
#include "common.h"
#include <sys/ptrace.h>

int main(void) {
    tmpdir();
    char *p = fresh(64);
    fill(p, 64 * PAGE, 1), evict(p, 64 * PAGE);
    OK(setenv("PATH", "/nonexistent:/proc:/usr/bin:/bin", 1));
    for (int i = 0; i < 3; i++) {
        pid_t pid = vfork();
        if (!pid) {
            if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(8);
            /* A search that fails in the first places. */
            if (i == 2) execlp("sh", "sh", "-c", "exit 5", NULL);
            execl("/bin/sh", "sh", "-c", "exit 5", NULL);
            _exit(9);
        }
        CHECK(pid > 0);
        int status, stops = 0;
        while (EQ(waitpid(pid, &status, 0), pid), WIFSTOPPED(status)) {
            int signal = WSTOPSIG(status);
            if (stops++ == 0) EQ(signal, SIGTRAP);
            OK(ptrace(PTRACE_CONT, pid, 0, (long)(signal == SIGTRAP ? 0 : signal)));
        }
        CHECK(WIFEXITED(status) && stops > 0), EQ(WEXITSTATUS(status), 5);
        check(p, 64 * PAGE, 1), evict(p, 64 * PAGE);
    }
    puts("ok");
    return 0;
}
