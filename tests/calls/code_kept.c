/* Code that was made before nothing becomes executable any more that was written (PR_SET_MDWE): it runs after it was evicted, also beside a
 * thread; and data as before. */
#include "common.h"
#include <sys/prctl.h>
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

enum { PAGES = 1024 };

static void *waits(void *lock) {
    OK(pthread_mutex_lock(lock)), OK(pthread_mutex_unlock(lock));
    return NULL;
}
/* Each page has a function that returns its number. */
static void make(unsigned char *p) {
    for (int i = 0; i < PAGES; i++) {
        unsigned char code[] = {0xb8, 0, 0, 0, 0, 0xc3};
        memcpy(code + 1, &i, sizeof i), memcpy(p + i * PAGE, code, sizeof code);
    }
    OK(mprotect(p, PAGES * PAGE, PROT_READ | PROT_EXEC));
}
static void run(unsigned char *p) {
    for (int i = 0; i < PAGES; i++) EQ(((int (*)(void))(p + i * PAGE))(), i);
}

int main(void) {
    tmpdir();
    for (int threads = 0; threads < 2; threads++) {
        expect_exit(CHILD({
            pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            pthread_t thread;
            OK(pthread_mutex_lock(&lock));
            if (threads) OK(pthread_create(&thread, NULL, waits, &lock));
            unsigned char *p = (unsigned char *)fresh(PAGES);
            char *data = fresh(PAGES);
            make(p), fill(data, PAGES * PAGE, 1);
            /* As with a kernel that does not know it. */
            if (prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0) EQ(errno, EINVAL);
            for (int i = 0; i < 3; i++) {
                run(p), check(data, PAGES * PAGE, 1);
                evict(p, PAGES * PAGE), evict(data, PAGES * PAGE);
            }
            OK(pthread_mutex_unlock(&lock));
            if (threads) OK(pthread_join(thread, NULL));
            _exit(3);
        }), 3);
    }
    puts("ok");
    return 0;
}
