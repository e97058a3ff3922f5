/* SIGSEGV and SIGBUS that are sent while a call waits, and whose handler does not want it to be started again: it ends with EINTR; but a mutex
 * with priority inheritance is waited for until it is had. */
#include "common.h"

static volatile int seen, rescued, inside;
static volatile pid_t waiter_tid;
static pthread_t waiter;

static void on_signal(int number) { seen += number != SIGUSR1, rescued += number == SIGUSR1; }

static void until_asleep(void) {
    char path[64], text[512];
    for (int asleep = 0; asleep < 3;) {
        sleep_ms(2);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter_tid);
        FILE *f = waiter_tid ? fopen(path, "r") : NULL;
        CHECK(!waiter_tid || (f && fgets(text, sizeof text, f)));
        if (f) fclose(f);
        asleep = waiter_tid && strstr(text, ") S ") ? asleep + 1 : 0;
    }
}

/* If the call goes on waiting, it must not do so for ever. */
static void *sends(void *arg) {
    sigset_t all;
    sigfillset(&all), OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    until_asleep();
    OK(pthread_kill(waiter, *(int *)arg));
    for (int i = 0; i < 100; i++) {
        sleep_ms(5);
        if (!waiter_tid) return NULL;
    }
    OK(pthread_kill(waiter, SIGUSR1));
    return NULL;
}

#define INTERRUPTED(call)                                                                                            \
    ({                                                                                                               \
        for (int n_ = 0; n_ < 2; n_++) {                                                                             \
            pthread_t sender_;                                                                                       \
            int number_ = n_ ? SIGBUS : SIGSEGV;                                                                     \
            waiter = pthread_self(), seen = rescued = 0, waiter_tid = gettid();                                      \
            OK(pthread_create(&sender_, NULL, sends, &number_));                                                     \
            expect_errno(call, EINTR);                                                                               \
            waiter_tid = 0;                                                                                          \
            OK(pthread_join(sender_, NULL));                                                                         \
            EQ(seen, 1), EQ(rescued, 0);                                                                             \
        }                                                                                                            \
    })

static void calls(void) {
    struct how {
        uint64_t flags, mode, resolve;
    } how = {O_RDONLY, 0, 0};
    struct wait {
        uint64_t value, address;
        uint32_t flags, reserved;
    };
    int empty[2], full[2];
    uint32_t *word = OLD(uint32_t);
    OK(mkfifo("fifo", 0600)), OK(pipe(empty)), OK(pipe(full));
    EQ(fcntl(full[1], F_SETPIPE_SZ, PAGE), PAGE);
    char *page = fresh(1);
    memset(page, 1, PAGE);
    EQ(write(full[1], page, PAGE), PAGE);
    struct iovec part = {page, PAGE};
    INTERRUPTED(syscall(SYS_openat2, AT_FDCWD, str("fifo"), arg(&how, sizeof how), sizeof how));
    INTERRUPTED(creat(str("fifo"), 0600));
    INTERRUPTED(tee(empty[0], full[1], 1, 0));
    INTERRUPTED(vmsplice(full[1], arg(&part, sizeof part), 1, 0));
    *word = 7;
    struct wait wait = {7, (uintptr_t)word, 2, 0};
    if (syscall(449, &wait, 1, 1, NULL, 0), errno != ENOSYS) INTERRUPTED(syscall(449, arg(&wait, sizeof wait), 1, 0, NULL, 0));
    if (syscall(455, word, 8UL, 0xffffffffUL, 2, NULL, 0), errno != ENOSYS) INTERRUPTED(syscall(455, word, 7UL, 0xffffffffUL, 2, NULL, 0));
    close(empty[0]), close(empty[1]), close(full[0]), close(full[1]);
}

static void *locks(void *mutex) {
    waiter = pthread_self(), waiter_tid = gettid();
    EQ(pthread_mutex_lock(mutex), 0);
    inside = 1;
    EQ(pthread_mutex_unlock(mutex), 0);
    return NULL;
}

static void mutex(void) {
    pthread_mutexattr_t inherits;
    pthread_t thread;
    pthread_mutex_t *mutex = OLD(pthread_mutex_t);
    OK(pthread_mutexattr_init(&inherits)), OK(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(mutex, &inherits));
    OK(pthread_mutex_lock(mutex));
    seen = 0;
    OK(pthread_create(&thread, NULL, locks, mutex));
    for (int i = 0; i < 4; i++) {
        until_asleep();
        OK(pthread_kill(thread, i % 2 ? SIGBUS : SIGSEGV));
        while (seen == i && !inside) sleep_ms(1);
        sleep_ms(5);
        EQ(inside, 0);
    }
    OK(pthread_mutex_unlock(mutex)), OK(pthread_join(thread, NULL));
    EQ(inside, 1), EQ(seen, 4);
    OK(pthread_mutex_destroy(mutex));
}

int main(void) {
    tmpdir();
    handle_signal(SIGSEGV, on_signal, 0), handle_signal(SIGBUS, on_signal, 0), handle_signal(SIGUSR1, on_signal, 0);
    calls();
    waiter_tid = 0;
    mutex();
    puts("ok");
    return 0;
}
