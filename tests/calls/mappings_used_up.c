/* A program with threads uses up the mappings that a process may have (vm.max_map_count), while another thread makes some and gives
 * them back. What it had stays right: a page that cannot come in then is told by SIGBUS, nobody waits for it for ever, and it comes
 * once there is room. Plainly no page is missing. */
#include "common.h"
#include <setjmp.h>

enum { PAGES = 44 << 8, MOST = 70000, SOME = 64 };
static sigjmp_buf again;
static int fd;
static volatile int stop;

static void missing(int signal) { (void)signal, siglongjmp(again, 1); }
static char *one(void) { return mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0); }
static void *churn(void *none) {
    while (!stop) {
        char *made[SOME];
        int n = 0;
        while (n < SOME && (made[n] = one()) != MAP_FAILED) n++;
        while (n > 0) OK(munmap(made[--n], PAGE));
    }
    return none;
}
/* How many of the pages, or of every second one, could not be read. */
static size_t look(const char *area, size_t step) {
    volatile size_t missed = 0;
    for (volatile size_t i = 0; i < PAGES; i += step) {
        if (sigsetjmp(again, 1)) missed++;
        else EQ(*(const volatile size_t *)(area + i * PAGE), i * 77 + 1);
    }
    return missed;
}
static char *many[MOST];
static size_t used;
static void use_up(void) {
    while (used < MOST && (many[used] = one()) != MAP_FAILED) used++;
}
int main(void) {
    pthread_t thread;
    tmpdir(), make_file("file", PAGE, 1);
    CHECK((fd = open("file", O_RDONLY)) >= 0);
    char *area = fresh(PAGES);
    for (size_t i = 0; i < PAGES; i++) *(size_t *)(area + i * PAGE) = i * 77 + 1;
    handle_signal(SIGBUS, missing, 0);
    OK(pthread_create(&thread, NULL, churn, NULL));
    use_up();
    look(area, 1), look(area, 1);
    stop = 1;
    OK(pthread_join(thread, NULL));
    /* What is read in order leaves few mappings; once none can be made, each second page would need two. */
    for (int i = 0; i < 8000 && used > 0; i++) OK(munmap(many[--used], PAGE));
    EQ(look(area, 1), 0);
    use_up();
    look(area, 2);
    while (used > 0) OK(munmap(many[--used], PAGE));
    EQ(look(area, 1), 0);
    puts("ok");
    return 0;
}
