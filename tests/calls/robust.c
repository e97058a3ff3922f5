/* A process that ends while it holds robust mutexes: the one that it shares is found dead by the next, though the list of
 * those it held went through memory that was evicted. */
#include "common.h"

enum { OTHERS = 8 };
static pthread_mutex_t *shared;

static void make(pthread_mutex_t *m, int process_shared) {
    pthread_mutexattr_t a;
    OK(pthread_mutexattr_init(&a)), OK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
    if (process_shared) OK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(m, &a));
}
static void expect_dead(pthread_mutex_t *m) {
    struct timespec t;
    OK(clock_gettime(CLOCK_REALTIME, &t));
    t.tv_sec += 5;
    EQ(pthread_mutex_timedlock(m, &t), EOWNERDEAD);
    OK(pthread_mutex_consistent(m)), OK(pthread_mutex_unlock(m));
}
/* Locks the shared one between private ones in memory of their own. */
static void hold_all(pthread_mutex_t *private[]) {
    for (int i = 0; i < OTHERS; i++) {
        if (i == OTHERS / 2) OK(pthread_mutex_lock(shared));
        OK(pthread_mutex_lock(private[i]));
    }
}
/* As far as it goes: the kernel walks through the locks that are held. */
static void put_away(pthread_mutex_t *private[]) {
    for (int i = 0; i < OTHERS; i++) evict_some(private[i], sizeof **private);
    pressure(40);
    for (int i = 0; i < OTHERS; i++) evict_some(private[i], sizeof **private);
}
static void *ends_holding(void *private) {
    hold_all(private);
    put_away(private);
    return NULL;
}
static void *ends_process(void *arg) {
    (void)arg;
    _exit(0);
}
int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return 0;
    tmpdir();
    char self[PATH_MAX];
    CHECK(realpath("/proc/self/exe", self));
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    make(shared, 1);
    for (int way = 0; way < 5; way++) {
        pid_t pid = CHILD({
            pthread_mutex_t *private[OTHERS];
            for (int i = 0; i < OTHERS; i++) make(private[i] = (pthread_mutex_t *)(fresh(16) + 512), 0);
            pthread_t t;
            if (way == 4) {
                OK(pthread_create(&t, NULL, ends_holding, private)), OK(pthread_join(t, NULL));
                expect_dead(shared);
                for (int i = 0; i < OTHERS; i++) expect_dead(private[i]);
                pthread_mutex_lock(shared);
                _exit(0);
            }
            hold_all(private);
            put_away(private);
            if (way == 0) kill(getpid(), SIGKILL);
            if (way == 1) _exit(0);
            if (way == 2) execl(self, self, "ends", NULL);
            if (way == 3) OK(pthread_create(&t, NULL, ends_process, NULL)), pause();
            _exit(9);
        });
        int status;
        EQ(waitpid(pid, &status, 0), pid);
        CHECK(way == 0 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect_dead(shared);
    }
    puts("ok");
    return 0;
}
