/* Memory that is always mapped, and of which mappings are replaced (MAP_FIXED) as fast as threads can, by some that can be written to and by some that
 * cannot: no touch that either allows may fail, however often in a row it comes while one is replaced. */
#include "common.h"

enum { PAGES = 16, TAKERS = 3, WAYS = 3, TURN_MS = 500 };
static char *place_at;
static int way, is_over;

static void *replaces(void *unused) {
    for (unsigned n = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); n++) {
        int access = way == 1 && n % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        int kind = way == 2 ? MAP_SHARED : MAP_PRIVATE;
        CHECK(mmap(place_at, PAGES * PAGE, access, kind | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place_at);
    }
    return unused;
}
static void failed(int number, siginfo_t *info, void *context) {
    (void)context;
    die("way %d: signal %d, code %d, page %ld", way, number, info->si_code, (long)((char *)info->si_addr - place_at) / (long)PAGE);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = failed, .sa_flags = SA_SIGINFO};
    char *memory = fresh(256);
    alarm(60);
    fill(memory, 256 * PAGE, 1), evict(memory, 256 * PAGE);
    OK(sigaction(SIGSEGV, &action, NULL)), OK(sigaction(SIGBUS, &action, NULL));
    place_at = fresh(PAGES);
    for (way = 0; way < WAYS; way++) {
        pthread_t takers[TAKERS];
        is_over = 0;
        OK(mprotect(place_at, PAGES * PAGE, PROT_READ | PROT_WRITE));
        for (int i = 0; i < TAKERS; i++) OK(pthread_create(&takers[i], NULL, replaces, NULL));
        for (int64_t end = now_ns() + TURN_MS * 1000000L; now_ns() < end;)
            for (int i = 0; i < PAGES; i++) {
                volatile char *at = place_at + i * PAGE;
                if (way != 1) *at = 1;
                char found = *at;
                CHECK(found == 0 || found == 1);
            }
        __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < TAKERS; i++) OK(pthread_join(takers[i], NULL));
    }
    check(memory, 256 * PAGE, 1);
    puts("ok");
    return 0;
}
