/* mprotect: read-only, none, executable; content kept, signals right, and its errors. */
#include "faults.h"

static char *page;
static volatile sig_atomic_t fixed;
static void allow(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    fixed++;
    if (i->si_code != SEGV_ACCERR || (char *)i->si_addr < page || (char *)i->si_addr >= page + 8 * PAGE) _exit(9);
    mprotect((void *)((uintptr_t)i->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}
static void test(void) {
    catch_faults();
    char *p = page = fresh(8);
    fill(p, 8 * PAGE, 190);
    for (int old = 0; old < 2; old++) {
        if (old) evict(p, 8 * PAGE);
        OK(CALL(mprotect, p + 2 * PAGE, 2 * PAGE, PROT_READ));
        FAULTS_WITH(p + 2 * PAGE + 5, 1, SEGV_ACCERR);
        check(p, 8 * PAGE, 190);
        evict(p, 8 * PAGE);
        FAULTS_WITH(p + 3 * PAGE, 1, SEGV_ACCERR);
        OK(touch(p + 4 * PAGE, 1)), OK(touch(p + 2 * PAGE - 1, 1));
        OK(CALL(mprotect, p + 2 * PAGE, 2 * PAGE, PROT_NONE));
        FAULTS_WITH(p + 2 * PAGE, 0, SEGV_ACCERR);
        FAULTS_WITH(p + 4 * PAGE - 1, 0, SEGV_ACCERR);
        evict(p, 8 * PAGE);
        OK(CALL(mprotect, p, 8 * PAGE, PROT_READ | PROT_WRITE));
        check(p, 8 * PAGE, 190);
    }
    /* Never touched, first without access. */
    char *q = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAULTS_WITH(q, 0, SEGV_ACCERR);
    OK(CALL(mprotect, q, 4 * PAGE, PROT_READ)), check_zero(q, 4 * PAGE);
    FAULTS_WITH(q, 1, SEGV_ACCERR);
    OK(CALL(mprotect, q + PAGE, 4 * PAGE, PROT_READ | PROT_WRITE));
    fill(q + PAGE, 4 * PAGE, 191), evict(q, 8 * PAGE), check(q + PAGE, 4 * PAGE, 191);
    FAULTS_WITH(q + 5 * PAGE, 0, SEGV_ACCERR);
    /* A collector's write barrier: the handler grants access and the instruction goes on. */
    struct sigaction a = {.sa_sigaction = allow, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSEGV, &a, NULL));
    fixed = 0;
    evict(p, 8 * PAGE), OK(CALL(mprotect, p, 8 * PAGE, PROT_READ));
    for (int i = 0; i < 8; i++) p[i * PAGE + 77] ^= 1;
    EQ(fixed, 8);
    for (int i = 0; i < 8; i++) p[i * PAGE + 77] ^= 1;
    evict(p, 8 * PAGE), OK(CALL(mprotect, p, 8 * PAGE, PROT_NONE));
    check(p, 8 * PAGE, 190), EQ(fixed, 16);
    catch_faults();
    /* Written, then made executable, as by any compiler at run time. */
    static const unsigned char returns_7[] = {0xb8, 7, 0, 0, 0, 0xc3};
    memcpy(p, returns_7, sizeof returns_7), evict(p, PAGE);
    OK(CALL(mprotect, p, PAGE, PROT_READ | PROT_EXEC));
    evict(p, PAGE);
    EQ(((int (*)(void))p)(), 7);
    OK(CALL(mprotect, p, PAGE, PROT_READ | PROT_WRITE));
    fill(p, PAGE, 190);

    expect_errno(CALL(mprotect, p + 1, PAGE, PROT_READ), EINVAL);
    expect_errno(CALL(mprotect, p, PAGE, 0x100), EINVAL);
    OK(CALL(mprotect, p, 0L, PROT_NONE));
    char *g = guarded(2);
    fill(g, 2 * PAGE, 192), evict(g, 2 * PAGE);
    expect_errno(CALL(mprotect, g, 4 * PAGE, PROT_READ), ENOMEM);
    /* What lies before the hole was protected all the same. */
    FAULTS_WITH(g, 1, SEGV_ACCERR);
    check(g, 2 * PAGE, 192), check(p, 8 * PAGE, 190);
    munmap(p, 8 * PAGE), munmap(q, 8 * PAGE), munmap(g, 2 * PAGE);
}
BOTH_WAYS(test)
