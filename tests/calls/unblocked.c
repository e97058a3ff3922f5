/* Signals that waited come as they are unblocked: within the call, whose old mask is known by then, and under the new one. */
#include "common.h"
#include <setjmp.h>

static volatile sig_atomic_t handled, leaves;
static sigset_t *saved;
static sigjmp_buf back;

static sigset_t now(void) {
    sigset_t set;
    OK(sigprocmask(SIG_BLOCK, NULL, &set));
    return set;
}
static int has(int signal) {
    sigset_t set = now();
    return sigismember(&set, signal);
}
static void handler(int signal) {
    EQ(sigismember(saved, signal), 1), EQ(sigismember(saved, SIGWINCH), 1);
    /* Of what was blocked with it, nothing is. */
    EQ(has(SIGWINCH), 0), EQ(has(signal), 1), EQ(has(SIGVTALRM), leaves & 1);
    handled = signal;
    if (leaves & 2) siglongjmp(back, 1);
}

static void one(int signal, int how, int also) {
    sigset_t set, none;
    struct sigaction action = {.sa_handler = handler};
    OK(sigaction(signal, &action, NULL));
    sigemptyset(&set), sigemptyset(&none), sigaddset(&set, signal), sigaddset(&set, SIGWINCH);
    if (how == SIG_SETMASK && also & 1) sigaddset(&none, SIGVTALRM);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    handled = 0, leaves = also;
    OK(raise(signal));
    EQ(handled, 0), EQ(has(signal), 1);
    memset(saved, 0, sizeof *saved);
    if (!sigsetjmp(back, 0)) {
        OK(sigprocmask(how, how == SIG_UNBLOCK ? &set : &none, saved));
        CHECK(!(also & 2));
    }
    EQ(handled, signal), EQ(has(SIGWINCH), 0), EQ(has(SIGVTALRM), also & 1);
    /* Who leaves finds what the handler had. */
    EQ(has(signal), also >> 1);
    sigemptyset(&none), OK(sigprocmask(SIG_SETMASK, &none, NULL));
}

static void test(void) {
    const int signals[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGSYS, SIGRTMAX};
    char *area = fresh(4);
    memset(area, 1, 4 * PAGE);
    saved = (sigset_t *)(area + 2 * PAGE - 64);
    for (int i = 0; i < 5; i++) {
        for (int also = 0; also < 4; also++) {
            evict_some(area, 4 * PAGE);
            if (!(also & 1)) one(signals[i], SIG_UNBLOCK, also);
            one(signals[i], SIG_SETMASK, also);
        }
        /* The same set in and out. */
        sigset_t both, *alias = &both;
        sigemptyset(&both), sigaddset(&both, signals[i]);
        OK(sigprocmask(SIG_SETMASK, &both, NULL));
        sigemptyset(&both), sigaddset(&both, SIGWINCH);
        __asm__("" : "+r"(alias));
        OK(sigprocmask(SIG_SETMASK, alias, &both));
        EQ(sigismember(&both, signals[i]), 1), EQ(sigismember(&both, SIGWINCH), 0);
        EQ(has(SIGWINCH), 1), EQ(has(signals[i]), 0);
        sigemptyset(&both), OK(sigprocmask(SIG_SETMASK, &both, NULL));
    }
    expect_errno(sigprocmask(7, saved, NULL), EINVAL);
    OK(sigprocmask(7, NULL, saved));
}

int main(void) {
    test();
    puts("ok");
    return 0;
}
