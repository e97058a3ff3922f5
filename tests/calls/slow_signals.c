/* SIGSEGV and SIGBUS that somebody sends while a call waits: it ends with EINTR, or goes on where the handler says so, whichever call it is,
 * and whether its arguments are in evicted memory or not. */
#include "common.h"
#include <linux/futex.h>
#include <linux/openat2.h>

enum { OPENAT2, CREAT, TEE, VMSPLICE, WAITV, WAIT, CALLS, NUMBER_WAITV = 449, NUMBER_WAIT = 455, WORD_PRIVATE = 2 | 128, SPLICED = 3 * 4096 + 5 };
static const char *names[] = {"openat2", "creat", "tee", "vmsplice", "futex_waitv", "futex_wait"};
static const int signals[] = {SIGSEGV, SIGBUS};
static int call, restarts, number, waiter_tid, in_managed, from[2], to[2], returned, was_asleep;
static pthread_t waiter;
static uint32_t *word;
static char *bytes;
static volatile sig_atomic_t seen;

static void handler(int s) { (void)s, seen++; }
static int is_back(void) { return __atomic_load_n(&returned, __ATOMIC_SEQ_CST); }
static void until_asleep(void) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter_tid);
    for (int asleep = 0; asleep < 3 && !is_back();) {
        sleep_ms(1);
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        asleep = strstr(text, ") S ") ? asleep + 1 : 0;
    }
}
/* Gives the call what it waits for, and until it is back. */
static void end_wait(void) {
    static char room[1 << 20];
    int fd = call <= CREAT ? open("fifo", O_RDWR | O_NONBLOCK) : -1;
    if (call == TEE) EQ(write(from[1], "x", 1), 1);
    while (!is_back()) {
        if (call == VMSPLICE && read(to[0], room, sizeof room) < 0) EQ(errno, EAGAIN);
        if (call >= WAITV) syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
        sleep_ms(1);
    }
    if (fd >= 0) OK(close(fd));
}
static void *sends(void *arg) {
    for (int i = 0; i <= restarts; i++) {
        until_asleep();
        seen = 0;
        OK(pthread_kill(waiter, number));
        while (!seen) sleep_ms(1);
    }
    if (restarts) until_asleep();
    else
        for (int i = 0; i < 300 && !is_back(); i++) sleep_ms(1);
    was_asleep = !is_back();
    end_wait();
    return arg;
}
static void *in(const void *p, size_t n) { return in_managed ? arg(p, n) : (void *)p; }
static long wait_in_call(void) {
    struct open_how how = {.flags = O_RDONLY};
    struct iovec v = {bytes, SPLICED};
    /* struct futex_waitv, which not all headers have. */
    uint64_t one[3] = {7, (uintptr_t)word, WORD_PRIVATE};
    struct timespec end;
    OK(clock_gettime(CLOCK_MONOTONIC, &end)), end.tv_sec += 50;
    if (in_managed) evict_some(word, 4), evict_some(bytes, SPLICED);
    if (call == OPENAT2) return syscall(SYS_openat2, AT_FDCWD, in("fifo", 5), in(&how, sizeof how), sizeof how);
    if (call == CREAT) return syscall(SYS_creat, in("fifo", 5), 0600);
    if (call == TEE) return tee(from[0], to[1], 1, 0);
    if (call == VMSPLICE) return vmsplice(to[1], in(&v, sizeof v), 1, 0);
    /* One without and one with an end, of which a call that is started again still knows. */
    if (call == WAITV) return syscall(NUMBER_WAITV, in(one, sizeof one), 1, 0, restarts ? in(&end, sizeof end) : NULL, CLOCK_MONOTONIC);
    return syscall(NUMBER_WAIT, word, 7L, ~0u, WORD_PRIVATE, restarts ? in(&end, sizeof end) : NULL, CLOCK_MONOTONIC);
}
/* Whether all is as it should be. */
static int ends_well(void) {
    static const long results[] = {0, 0, 1, SPLICED, 0, 0};
    struct sigaction a = {.sa_handler = handler, .sa_flags = restarts ? SA_RESTART : 0};
    OK(sigaction(number, &a, NULL));
    OK(pipe2(from, O_CLOEXEC)), OK(pipe2(to, O_CLOEXEC | O_NONBLOCK));
    static const char zeros[1 << 12];
    while (call == VMSPLICE && write(to[1], zeros, sizeof zeros) > 0) {
    }
    OK(fcntl(to[1], F_SETFL, 0));
    returned = 0;
    pthread_t sender;
    OK(pthread_create(&sender, NULL, sends, NULL));
    errno = 0;
    long got = wait_in_call(), error = got < 0 ? errno : 0;
    __atomic_store_n(&returned, 1, __ATOMIC_SEQ_CST);
    OK(pthread_join(sender, NULL));
    if (call <= CREAT && got >= 0) OK(close(got)), got = 0;
    int well = restarts ? was_asleep && got == results[call] : !was_asleep && got == -1 && error == EINTR;
    if (!well) fprintf(stderr, "%s: signal %d, %s restart, arguments %s: %ld, errno %ld, after %s\n", names[call], number, restarts ? "with" : "without",
        in_managed ? "evicted" : "not evicted", got, error, was_asleep ? "what it waits for came" : "the signal");
    for (int i = 0; i < 2; i++) OK(close(from[i])), OK(close(to[i]));
    return well;
}
int main(void) {
    tmpdir(), alarm(60);
    OK(mkfifo("fifo", 0600));
    word = (uint32_t *)fresh(64), *word = 7;
    bytes = fresh(64), fill(bytes, 64 * PAGE, 1), evict(bytes, 64 * PAGE);
    waiter = pthread_self(), waiter_tid = getpid();
    int failed = 0;
    for (call = 0; call < CALLS; call++) {
        /* Not known to every kernel. */
        if (call == OPENAT2 && syscall(SYS_openat2, -1, "", NULL, 0) < 0 && errno == ENOSYS) continue;
        if (call >= WAITV && syscall(call == WAITV ? NUMBER_WAITV : NUMBER_WAIT, NULL, 0, 0, 0, NULL, 0) < 0 && errno == ENOSYS) continue;
        int well = 1;
        for (int i = 0; i < 8 && well; i++) in_managed = i & 1, restarts = i >> 1 & 1, number = signals[i >> 2], well = ends_well();
        failed |= !well;
    }
    check(bytes, 64 * PAGE, 1), EQ(*word, 7);
    if (failed) return 1;
    puts("ok");
    return 0;
}
