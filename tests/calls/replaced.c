/* Mappings are replaced (MAP_FIXED) while another thread uses them: it finds what was there or what is there, and never a hole. */
#include "common.h"

enum { PAGES = 4096, ROUNDS = 300 };
static char *place_at;
static int done;

static void *use(void *unused) {
    uint64_t x = 1;
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        char *at = place_at + next_random(&x) % (PAGES * PAGE);
        char found = *(volatile char *)at;
        CHECK(found == 0 || found == 1);
        *(volatile char *)at = 1;
    }
    return unused;
}

int main(void) {
    place_at = fresh(PAGES);
    memset(place_at, 1, PAGES * PAGE);
    evict(place_at, PAGES * PAGE);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, use, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        memset(place_at, 1, PAGES * PAGE / 8);
        if (i % 3 == 2) {
            char *other = fresh(PAGES);
            EQ((intptr_t)mremap(other, PAGES * PAGE, PAGES * PAGE, 3, place_at), (intptr_t)place_at);
            continue;
        }
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (i % 3 == 0 ? MAP_STACK : 0);
        EQ((intptr_t)mmap(place_at, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0), (intptr_t)place_at);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    OK(pthread_join(thread, NULL));
    puts("ok");
    return 0;
}
