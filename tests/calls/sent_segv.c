/* SIGSEGV, SIGBUS and SIGSYS that somebody sent: ignored ones interrupt nothing, calls are restarted where the handler says
 * so, and end with EINTR where not. */
#include "common.h"

static const int signals[] = {SIGSEGV, SIGBUS, SIGSYS};
static volatile sig_atomic_t seen;
static int ends[2], in_managed;
static pthread_t waiter;
static int waiter_tid;

static void handler(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    CHECK(i->si_code == SI_USER || i->si_code == SI_TKILL || i->si_code == SI_QUEUE);
    seen++;
}
static void until_asleep(void) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter_tid);
    for (int asleep = 0; asleep < 3;) {
        sleep_ms(2);
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        asleep = strstr(text, ") S ") ? asleep + 1 : 0;
    }
}
struct plan {
    int number, how, more;
};
static void *sends(void *arg) {
    struct plan *p = arg;
    sigset_t all;
    sigfillset(&all), OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    for (int i = 0; i < 3; i++) {
        until_asleep();
        if (p->how == 0) OK(pthread_kill(waiter, p->number));
        if (p->how == 1) OK(kill(getpid(), p->number));
        if (p->how == 2) OK(sigqueue(getpid(), p->number, (union sigval){.sival_int = 3}));
        if (!p->more) return NULL;
    }
    until_asleep();
    EQ(write(ends[1], "x", 1), 1);
    return NULL;
}
static void waits(int number, int how, int action) {
    struct sigaction a = {.sa_flags = SA_SIGINFO | (action == 1 ? SA_RESTART : 0)};
    if (action == 0)
        a = (struct sigaction){.sa_handler = SIG_IGN};
    else
        a.sa_sigaction = handler;
    OK(sigaction(number, &a, NULL));
    seen = 0;
    char *byte = in_managed ? OLD(char) : alloca(1);
    pthread_t t;
    struct plan plan = {number, how, action != 2};
    OK(pthread_create(&t, NULL, sends, &plan));
    if (action == 2)
        expect_errno(read(ends[0], byte, 1), EINTR);
    else {
        EQ(read(ends[0], byte, 1), 1);
        EQ(*byte, 'x');
    }
    OK(pthread_join(t, NULL));
    EQ(seen, action == 0 ? 0 : action == 1 ? 3 : 1);
    signal(number, SIG_DFL);
}
int main(void) {
    tmpdir();
    OK(pipe(ends));
    waiter = pthread_self(), waiter_tid = getpid();
    for (in_managed = 0; in_managed < 2; in_managed++)
        for (int i = 0; i < 3; i++)
            for (int how = 0; how < 3; how++)
                for (int action = 0; action < 3; action++) waits(signals[i], how, action);
    /* Ignored, it does not end a wait for a child either. */
    for (int i = 0; i < 3; i++) {
        signal(signals[i], SIG_IGN);
        pid_t pid = CHILD({
            for (int k = 0; k < 20; k++) kill(getppid(), signals[i]), sleep_ms(2);
            _exit(7);
        });
        expect_exit(pid, 7);
        signal(signals[i], SIG_DFL);
    }
    puts("ok");
    return 0;
}
