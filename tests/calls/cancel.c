/* pthread_cancel of threads that are blocked in calls on evicted memory, or use it: their cleanup handlers run, deferred and
 * asynchronous; what they held is free again. */
#include "common.h"
#include <sys/ioctl.h>

enum { PAGES = 256, WAYS = 9, ROUNDS = 12 };
static char *area;
static int ends[2], pipes[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t *condition;
static volatile int begun, cleaned, tid;

static void cleanup(void *arg) {
    /* Handlers use memory and make calls, as others do. */
    CHECK(*(volatile char *)(area + 200 * PAGE) == (char)byte_at(1, 200 * PAGE));
    int *kept = arg;
    EQ(*kept, 7);
    cleaned++;
    OK(pthread_mutex_unlock(&lock));
}
static void outer(void *arg) {
    (void)arg;
    cleaned += 100;
}
struct plan {
    int way, asynchronous;
};
static void *blocked(void *arg) {
    struct plan *plan = arg;
    int kept = 7, old;
    OK(pthread_setcanceltype(plan->asynchronous ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &old));
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    evict(area, PAGES * PAGE);
    OK(pthread_mutex_lock(&lock));
    pthread_cleanup_push(outer, NULL);
    pthread_cleanup_push(cleanup, &kept);
    struct iovec v[2] = {{area + 3 * PAGE, 100}, {area + 30 * PAGE, 9000}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    struct pollfd *p = (struct pollfd *)(area + 70 * PAGE);
    memset(area + 70 * PAGE, 0, PAGE);
    *p = (struct pollfd){ends[0], POLLIN, 0};
    struct timespec *t = (struct timespec *)(area + 72 * PAGE);
    *t = (struct timespec){100, 0};
    evict(area, PAGES * PAGE);
    tid = gettid(), begun = 1;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    switch (plan->way) {
    case 0: (void)!read(ends[0], area + 10 * PAGE, 5000); break;
    case 1: recv(ends[0], area + 10 * PAGE, 5000, MSG_WAITALL); break;
    case 2: recvmsg(ends[0], &m, 0); break;
    case 3: (void)!readv(pipes[0], v, 2); break;
    case 4: poll(p, 1, -1); break;
    case 5: nanosleep(t, NULL); break;
    case 6: pthread_cond_wait(condition, &lock); break;
    case 7:
        /* The pipe is full. */
        for (;;) (void)!write(pipes[1], area + 90 * PAGE, 20000);
    default:
        for (uint64_t i = 0;; i++) {
            if (plan->asynchronous)
                (void)*(volatile char *)(area + i % PAGES * PAGE);
            else
                pthread_testcancel(), evict(area + i % PAGES * PAGE, PAGE), (void)*(volatile char *)(area + i * 7 % PAGES * PAGE);
        }
    }
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}
static void until_asleep(void) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int asleep = 0; asleep < 2;) {
        sleep_ms(1);
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        asleep = strstr(text, ") S ") ? asleep + 1 : 0;
    }
}
int main(void) {
    tmpdir();
    area = fresh(PAGES), condition = (pthread_cond_t *)fresh(1);
    fill(area, PAGES * PAGE, 1);
    OK(pthread_cond_init(condition, NULL));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)), OK(pipe(pipes));
    for (int round = 0; round < ROUNDS; round++)
        for (int way = 0; way < WAYS; way++)
            for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
                if (way == 6 && asynchronous) continue;
                pthread_t t;
                void *result;
                struct plan plan = {way, asynchronous};
                begun = cleaned = 0;
                OK(pthread_create(&t, NULL, blocked, &plan));
                while (!begun) sched_yield();
                /* Most are asleep by then; some are not yet. */
                if (way < 8 && round % 3) until_asleep();
                OK(pthread_cancel(t)), OK(pthread_join(t, &result));
                CHECK(result == PTHREAD_CANCELED);
                EQ(cleaned, 101);
                OK(pthread_mutex_trylock(&lock)), OK(pthread_mutex_unlock(&lock));
                int waiting;
                static char drained[1 << 17];
                OK(ioctl(pipes[0], FIONREAD, &waiting));
                if (waiting) EQ(read(pipes[0], drained, waiting), waiting);
            }
    check_from(area + 200 * PAGE, 50 * PAGE, 1, 200 * PAGE);
    puts("ok");
    return 0;
}
