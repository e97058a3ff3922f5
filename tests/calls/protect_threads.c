/* One thread changes the access of pages that another has evicted and reads, and a third has under pressure. */
#include "common.h"

enum { PAGES = 256, MANY = 6000, ROUNDS = 100 };

static char *shared;
static volatile int done;

static void *protector(void *unused) {
    (void)unused;
    while (!done) {
        OK(mprotect(shared, PAGES * PAGE, PROT_READ));
        OK(mprotect(shared + PAGE * 7, PAGE * 50, PROT_READ | PROT_WRITE));
        OK(mprotect(shared, PAGES * PAGE, PROT_READ | PROT_WRITE));
    }
    return NULL;
}

static void *presser(void *unused) {
    (void)unused;
    char *p = fresh(MANY);
    for (unsigned seed = 1; !done; seed++) fill(p, MANY * PAGE, seed), check(p, MANY * PAGE, seed);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    tmpdir();
    shared = fresh(PAGES);
    fill(shared, PAGES * PAGE, 9);
    OK(pthread_create(&threads[0], NULL, protector, NULL));
    OK(pthread_create(&threads[1], NULL, presser, NULL));
    for (int i = 0; i < ROUNDS; i++) evict(shared, PAGES * PAGE), check(shared, PAGES * PAGE, 9);
    done = 1;
    OK(pthread_join(threads[0], NULL));
    OK(pthread_join(threads[1], NULL));
    check(shared, PAGES * PAGE, 9);
    puts("ok");
    return 0;
}
