/* A touch that comes while another thread unmaps or protects what it is about brings SIGSEGV, with the code of what became of the memory:
 * SEGV_MAPERR where it is gone, SEGV_ACCERR where it may not be touched, and never SIGBUS. Whatever could be read before is right. */
#include "faults.h"

enum { PAGES = 128, SIZE = PAGES * 4096, ROUNDS = 200, MS = 450, TURNS = 8 };
enum { UNMAPPED, PROTECTED, REMAPPED, FLICKERS, PARTS };
static const struct {
    const char *name;
    int code;
    /* What was taken cannot be touched from then on. */
    int lasts;
} parts[PARTS] = {{"unmapped", SEGV_MAPERR, 1}, {"protected", SEGV_ACCERR, 1}, {"mapped again", SEGV_MAPERR, 0}, {"flickering", SEGV_ACCERR, 0}};
static char *area;
static int part, asked, done, is_over, failed;
static char *volatile at;

static void until(int *number, int reached) {
    for (int i = 0; __atomic_load_n(number, __ATOMIC_ACQUIRE) < reached; i++)
        if (i > 200) sched_yield();
}
static void take(void) {
    if (part == UNMAPPED) OK(munmap(area, SIZE));
    if (part == PROTECTED) OK(mprotect(area, SIZE, PROT_NONE));
    /* At the place of before, but not by MAP_FIXED, which would leave no hole. */
    for (int i = 0; part == REMAPPED && i < TURNS; i++)
        OK(munmap(area, SIZE)), EQ(mmap(area, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), area);
    for (int i = 0; part == FLICKERS && i < TURNS; i++) OK(mprotect(area, SIZE, PROT_NONE)), OK(mprotect(area, SIZE, PROT_READ | PROT_WRITE));
}
static void *takes(void *arg) {
    uint64_t x = 1;
    for (int n = 1;; n++) {
        until(&asked, n);
        if (is_over) return arg;
        /* The other one faults from then on, and where there is but one processor for both, is interrupted in that. */
        evict_some(area, SIZE);
        usleep(next_random(&x) % 100);
        take();
        __atomic_store_n(&done, n, __ATOMIC_RELEASE);
    }
}
/* Touches pages here and there until one faults, or all were once more after the other thread has been there. */
static int touches(int n) {
    static volatile size_t i;
    if (sigsetjmp(fault_jump, 1)) return 1;
    for (size_t last = SIZE; i < last; i++) {
        if (last == SIZE && i == SIZE / 2) i = 0;
        if (last == SIZE && __atomic_load_n(&done, __ATOMIC_ACQUIRE) >= n) last = i + PAGES;
        size_t from = i * 97 % PAGES * PAGE + i % 500 * 8;
        at = area + from;
        uint64_t found = *(Look *)at, right = word_at(part, from);
        if (found != right && !(part == REMAPPED && found == 0)) die("%s: %lx at %zu, not %lx", parts[part].name, found, from, right);
        if (i % 2) *(volatile uint64_t *)at = right;
    }
    i = 0;
    return 0;
}
static void races(int *n) {
    int right = 0, wrong = 0, signal = 0, code = 0;
    int64_t end = now_ns() + MS * 1000000L;
    for (int i = 0; i < ROUNDS && now_ns() < end; i++) {
        area = fresh(PAGES);
        fill(area, SIZE, part), evict_some(area, SIZE);
        __atomic_store_n(&asked, ++*n, __ATOMIC_RELEASE);
        int found = 0;
        while ((found == 0 || !parts[part].lasts) && touches(*n)) {
            CHECK(fault_address == at);
            if (fault_signal == SIGSEGV && fault_code == parts[part].code) right++;
            else if (wrong++ == 0) signal = fault_signal, code = fault_code;
            found = 1;
        }
        until(&done, *n);
        CHECK(found || !parts[part].lasts);
        if (part == PROTECTED) OK(mprotect(area, SIZE, PROT_READ));
        if (part == PROTECTED || part == FLICKERS) check(area, SIZE, part);
        if (part != UNMAPPED) OK(munmap(area, SIZE));
    }
    if (wrong) fprintf(stderr, "%s: %d of %d faults are wrong, as signal %d with code %d\n", parts[part].name, wrong, right + wrong, signal, code);
    failed |= wrong > 0;
}
/* No page may be executed, there or not; of what is not even mapped, that is said. */
static int fetch(char *p) {
    if (sigsetjmp(fault_jump, 1)) {
        CHECK(fault_address == p);
        EQ(fault_signal, SIGSEGV);
        return fault_code;
    }
    ((void (*)(void))p)();
    die("code without the right to be executed was");
}
static void fetches(void) {
    char *p = fresh(16), *hole = guarded(1) + HOLE / 2;
    for (int prot = PROT_NONE; prot <= (PROT_READ | PROT_WRITE); prot++) {
        OK(mprotect(p, 16 * PAGE, PROT_READ | PROT_WRITE));
        memset(p, 0xc3, 16 * PAGE), evict(p, 16 * PAGE);
        OK(mprotect(p, 16 * PAGE, prot));
        for (int i = 0; i < 16; i++) EQ(fetch(p + i * PAGE), SEGV_ACCERR), EQ(fetch(p + i * PAGE), SEGV_ACCERR), EQ(fetch(hole), SEGV_MAPERR);
        OK(mprotect(p, 16 * PAGE, PROT_READ));
        for (size_t i = 0; i < 16 * PAGE; i++) EQ((unsigned char)p[i], 0xc3);
    }
}
int main(void) {
    alarm(60);
    catch_faults();
    fetches();
    pthread_t other;
    OK(pthread_create(&other, NULL, takes, NULL));
    int n = 0;
    for (part = 0; part < PARTS; part++) races(&n);
    is_over = 1, __atomic_store_n(&asked, n + 1, __ATOMIC_RELEASE);
    OK(pthread_join(other, NULL));
    if (failed) return 1;
    puts("ok");
    return 0;
}
