/* A signal mask with which one call waited is not that of a later one that is made in parts: what is blocked stays blocked in the
 * handler of a signal that comes meanwhile, and the call goes on after it. */
#include "common.h"

static volatile int blocked_came, handled, in_handler;
static int ends[2];
enum { FULL = 1 << 16, LONG = 4 << 20 };

static void on_usr1(int signal) {
    (void)signal;
    handled++;
    in_handler = 1;
    kill(getpid(), SIGUSR2);
    in_handler = 0;
}
static void on_usr2(int signal) {
    (void)signal;
    blocked_came += in_handler;
}
static void *reads(void *writer) {
    sleep_ms(200);
    OK(pthread_kill(*(pthread_t *)writer, SIGUSR1));
    sleep_ms(200);
    static char got[FULL];
    for (long all = 0; all < FULL + LONG;) {
        ssize_t n = read(ends[0], got, sizeof got);
        CHECK(n > 0);
        all += n;
    }
    return NULL;
}

int main(void) {
    struct sigaction usr1 = {.sa_handler = on_usr1, .sa_flags = SA_RESTART}, usr2 = {.sa_handler = on_usr2};
    OK(sigaction(SIGUSR1, &usr1, NULL));
    OK(sigaction(SIGUSR2, &usr2, NULL));
    sigset_t mask, none;
    sigemptyset(&none);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    OK(pthread_sigmask(SIG_BLOCK, &mask, NULL));
    OK(pipe(ends));
    char *from = fresh(LONG / PAGE);
    memset(from, 1, LONG);
    EQ(write(ends[1], from, FULL), FULL);
    struct pollfd *waits = (struct pollfd *)fresh(1);
    *waits = (struct pollfd){.fd = ends[0], .events = POLLPRI};
    evict(waits, PAGE);
    EQ(ppoll(waits, 1, &(struct timespec){.tv_nsec = 1000000}, &none), 0);
    pthread_t me = pthread_self(), thread;
    OK(pthread_create(&thread, NULL, reads, &me));
    EQ(write(ends[1], from, LONG), LONG);
    EQ(handled, 1);
    EQ(blocked_came, 0);
    OK(pthread_join(thread, NULL));
    puts("ok");
    return 0;
}
