/* Who waits for a mutex with priority inheritance goes on waiting whatever signal comes, also if its handler does not ask for calls to be
 * started again: the kernel starts FUTEX_LOCK_PI again in any case, and C libraries take its end as the mutex being had. */
#include "common.h"
#include <linux/futex.h>

enum { LOCK, TIMED, CLOCKED, RAW_LOCK, RAW_LOCK2, WAYS };
static const char *ways[] = {"lock", "timedlock", "clocklock", "FUTEX_LOCK_PI", "FUTEX_LOCK_PI2"};
static const int signals[] = {SIGSEGV, SIGBUS, SIGUSR1};
static pthread_mutex_t own_mutex;
static uint32_t own_word;
static pthread_mutex_t *mutex;
static uint32_t *word;
static int way, in_managed, waiter_tid, owner;
static volatile int seen, has_it;

static void handler(int s) { (void)s, seen++; }
/* Had by none but the caller, until it says so. */
static void enter(int who) {
    int before = __atomic_exchange_n(&owner, who, __ATOMIC_SEQ_CST);
    if (before) die("%s, of %s memory: %d has it, and so has %d", ways[way], in_managed ? "evicted" : "its own", who, before);
}
static void leave(int who) { EQ(__atomic_exchange_n(&owner, 0, __ATOMIC_SEQ_CST), who); }
static void get(void) {
    struct timespec until;
    OK(clock_gettime(way == TIMED ? CLOCK_REALTIME : CLOCK_MONOTONIC, &until)), until.tv_sec += 50;
    if (way == LOCK) OK(pthread_mutex_lock(mutex));
    if (way == TIMED) OK(pthread_mutex_timedlock(mutex, &until));
#if __GLIBC_PREREQ(2, 34)
    if (way == CLOCKED) OK(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until));
#else
    if (way == CLOCKED) OK(pthread_mutex_lock(mutex));
#endif
    uint32_t none = 0, mine = syscall(SYS_gettid);
    if (way < RAW_LOCK || __atomic_compare_exchange_n(word, &none, mine, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    OK(syscall(SYS_futex, word, (way == RAW_LOCK ? FUTEX_LOCK_PI : 13) | FUTEX_PRIVATE_FLAG, 0, way == RAW_LOCK ? NULL : &until));
    EQ(__atomic_load_n(word, __ATOMIC_SEQ_CST) & FUTEX_TID_MASK, mine);
}
static void give(void) {
    uint32_t mine = syscall(SYS_gettid);
    if (way < RAW_LOCK) OK(pthread_mutex_unlock(mutex));
    else if (!__atomic_compare_exchange_n(word, &mine, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) OK(syscall(SYS_futex, word, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG));
}
static void *waits(void *arg) {
    __atomic_store_n(&waiter_tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    get(), enter(2), has_it = 1, leave(2), give();
    return arg;
}
static void until_asleep(void) {
    char path[64], text[512];
    int tid;
    while (!(tid = __atomic_load_n(&waiter_tid, __ATOMIC_SEQ_CST))) sleep_ms(1);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int asleep = 0; asleep < 3 && !has_it;) {
        sleep_ms(1);
        FILE *f = fopen(path, "r");
        if (!f) return;
        char *got = fgets(text, sizeof text, f);
        fclose(f);
        asleep = got && strstr(text, ") S ") ? asleep + 1 : 0;
    }
}
static void round_of(int number) {
    pthread_t waiter;
    waiter_tid = 0, has_it = 0;
    get(), enter(1);
    OK(pthread_create(&waiter, NULL, waits, NULL));
    for (int i = 1; i <= 3; i++) {
        until_asleep();
        seen = 0;
        OK(pthread_kill(waiter, number));
        while (!seen) sleep_ms(1);
        /* Also while what it waits on is out. */
        if (in_managed && i == 2) evict_some(mutex, PAGE), evict_some(word, PAGE);
    }
    until_asleep();
    EQ(has_it, 0);
    leave(1), give();
    OK(pthread_join(waiter, NULL));
    EQ(has_it, 1);
}
int main(void) {
    alarm(60);
    pthread_mutexattr_t inherits;
    OK(pthread_mutexattr_init(&inherits)), OK(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT));
    char *p = fresh(1024);
    fill(p, 1024 * PAGE, 1), evict(p, 1024 * PAGE);
    /* Not known before Linux 5.14. */
    int knows_lock2 = syscall(SYS_futex, &own_word, 13, 0, NULL) == 0;
    if (knows_lock2) own_word = 0;
    for (in_managed = 0; in_managed < 2; in_managed++) {
        mutex = in_managed ? (void *)(p + 100 * PAGE) : &own_mutex, word = in_managed ? (void *)(p + 300 * PAGE) : &own_word;
        *word = 0;
        OK(pthread_mutex_init(mutex, &inherits));
        for (way = 0; way < WAYS; way++)
            for (int i = 0; i < 3 && (knows_lock2 || (way != CLOCKED && way != RAW_LOCK2)); i++) {
                struct sigaction a = {.sa_handler = handler};
                OK(sigaction(signals[i], &a, NULL));
                if (in_managed) evict_some(mutex, PAGE), evict_some(word, PAGE);
                round_of(signals[i]);
            }
        OK(pthread_mutex_destroy(mutex));
    }
    check(p, 100 * PAGE, 1), check_from(p + 301 * PAGE, 723 * PAGE, 1, 301 * PAGE);
    puts("ok");
    return 0;
}
