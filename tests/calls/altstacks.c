/* Small alternate stacks, in managed memory and elsewhere: handlers on them touch much evicted memory and make calls of every
 * kind, and nothing below the stack is overwritten. Inside, sigaltstack tells the program's own stack. */
#include "common.h"
#include <sys/auxv.h>

enum { PAGES = 1024, BELOW = 16 << 10 };
static char *area, *door, *bottom;
static size_t size;
static volatile sig_atomic_t mode, ran;
static int null, zero, ends[2];

static void inside(void) {
    stack_t now;
    OK(sigaltstack(NULL, &now));
    EQ(now.ss_flags, SS_ONSTACK);
    CHECK(now.ss_sp == bottom);
    EQ(now.ss_size, size);
    char *sp = __builtin_frame_address(0);
    CHECK(sp > bottom && sp < bottom + size);
    /* It cannot be changed while it is in use. */
    stack_t other = {.ss_sp = area, .ss_size = 64 << 10};
    expect_errno(sigaltstack(&other, NULL), EPERM);
}
/* Not asked to run on a stack of its own: it runs on the one that is in use. */
static void nested(int s) {
    char here[1000], *p = here;
    memset(here, s, sizeof here);
    __asm__ volatile("" : : "r"(p) : "memory");
    CHECK(p > bottom && p < bottom + size);
    inside();
    ran++;
}
static __attribute__((noinline)) void handler(int s, siginfo_t *i, void *c) {
    (void)i, (void)c;
    CHECK(s == SIGUSR1 || s == SIGSEGV);
    inside();
    sigset_t set;
    size_t sum = 0;
    struct iovec two[2] = {{area + 7 * PAGE, 5000}, {area + 90 * PAGE, 5000}};
    evict(area, PAGES * PAGE);
    switch (mode) {
    case 0:
        for (size_t k = 0; k < PAGES; k += 3) sum += ((volatile unsigned char *)area)[k * PAGE];
        CHECK(sum > 0);
        break;
    case 1: EQ(write(null, area + 5 * PAGE, 50000), 50000); break;
    case 2: EQ(read(zero, area, 0), 0), EQ(writev(null, two, 2), 10000); break;
    case 3:
        OK(sigprocmask(SIG_BLOCK, NULL, &set)), EQ(sigismember(&set, s), 1);
        sigemptyset(&set), sigaddset(&set, SIGUSR2);
        OK(sigprocmask(SIG_BLOCK, &set, NULL)), OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
        if (size < 64 << 10) break;
        /* The page that this runs on comes back at once; there may be no other of this stack. */
        for (int k = 0; k < 3; k++) evict_some(bottom, size), OK(raise(SIGUSR2));
        ran -= 3;
        break;
    case 4: {
        pid_t pid = fork();
        if (!pid) {
            inside();
            _exit(((volatile unsigned char *)area)[50 * PAGE] != byte_at(1, 50 * PAGE));
        }
        int status;
        EQ(waitpid(pid, &status, 0), pid), EQ(status, 0);
        break;
    }
    case 5:
        EQ(send(ends[0], area + 9 * PAGE, 6000, 0), 6000);
        EQ(recv(ends[1], area + PAGES * PAGE, 6000, MSG_WAITALL), 6000);
        OK(memcmp(area + PAGES * PAGE, area + 9 * PAGE, 6000));
        break;
    case 6: {
        char *p = fresh(4);
        p[0] = 1, OK(mprotect(p, PAGE, PROT_READ)), OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
        p = mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED && p[0] == 1 && p[7 * PAGE] == 0);
        OK(munmap(p, 8 * PAGE));
        break;
    }
    default: {
        struct sigaction now;
        OK(sigaction(s, NULL, &now)), EQ(now.sa_flags & SA_ONSTACK, SA_ONSTACK);
        pid_t pid = vfork();
        if (!pid) _exit(((volatile unsigned char *)area)[60 * PAGE] == byte_at(1, 60 * PAGE) ? 6 : 7);
        int status;
        EQ(waitpid(pid, &status, 0), pid), EQ(WEXITSTATUS(status), 6);
    }
    }
    inside();
    ran++;
    if (s == SIGSEGV) OK(mprotect(door, PAGE, PROT_READ | PROT_WRITE));
}
static void with_stack(size_t bytes, int managed) {
    size_t room = BELOW + ((bytes + PAGE - 1) & ~(PAGE - 1));
    char *p = managed ? fresh(room / PAGE)
                      : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 0x77, room);
    size = bytes, bottom = p + room - bytes;
    stack_t s = {.ss_sp = bottom, .ss_size = size}, now, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&s, NULL));
    evict(p, room);
    OK(sigaltstack(NULL, &now)), EQ(now.ss_flags, 0), CHECK(now.ss_sp == bottom && now.ss_size == size);
    for (mode = 0; mode < 8; mode++) {
        for (int signal = 0; signal < 2; signal++) {
            int before = ran;
            if (managed) evict(p, room);
            if (signal) {
                OK(mprotect(door, PAGE, PROT_NONE));
                /* The handler gives the right back, after which the instruction runs again. */
                *(volatile char *)(door + 33) = 1;
            } else
                OK(raise(SIGUSR1));
            EQ(ran, before + 1);
        }
        /* Calls outside of handlers use none of it either. */
        EQ(write(null, area, 9000), 9000);
        expect_exit(CHILD({ check_from(area + 20 * PAGE, PAGE, 1, 20 * PAGE); }), 0);
        for (char *q = p; q < bottom; q++) EQ(*q, 0x77);
    }
    OK(sigaltstack(&none, &now)), EQ(now.ss_flags, 0), CHECK(now.ss_sp == bottom);
    OK(sigaltstack(NULL, &now)), EQ(now.ss_flags, SS_DISABLE);
    OK(munmap(p, room));
}
static void first_of_two(int s) {
    CHECK(s == SIGUSR1);
    inside();
    ran++;
}
/* Two that come at the same moment: the second is handled before the first handler's first instruction. */
static void at_once(int managed) {
    char *p = managed ? fresh(32)
                      : mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(p != MAP_FAILED);
    size = 32 * PAGE, bottom = p;
    stack_t s = {.ss_sp = bottom, .ss_size = size}, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&s, NULL));
    struct sigaction a = {.sa_handler = first_of_two, .sa_flags = SA_ONSTACK}, old;
    OK(sigaction(SIGUSR1, &a, &old));
    sigset_t two;
    sigemptyset(&two), sigaddset(&two, SIGUSR1), sigaddset(&two, SIGUSR2);
    for (int i = 0; i < 200; i++) {
        OK(pthread_sigmask(SIG_BLOCK, &two, NULL));
        OK(raise(SIGUSR1)), OK(raise(SIGUSR2));
        if (i % 2) evict(p, 32 * PAGE);
        if (i % 4 == 0) OK(madvise(p, 32 * PAGE, MADV_DONTNEED));
        int before = ran;
        OK(pthread_sigmask(SIG_UNBLOCK, &two, NULL));
        EQ(ran, before + 2);
    }
    OK(sigaction(SIGUSR1, &old, NULL)), OK(sigaltstack(&none, NULL)), OK(munmap(p, 32 * PAGE));
}
/* Timers of both kinds, one with SA_ONSTACK, while all of it comes and goes. */
static volatile sig_atomic_t handled;
static void on_timer(int s) {
    volatile char here[3000];
    here[0] = s;
    for (int i = 0; i < 3; i++) {
        size_t at = (size_t)(handled * 37 + i) % 64 * PAGE + 5;
        CHECK(((volatile unsigned char *)area)[at] == byte_at(1, at));
    }
    CHECK(here[0] == (char)s);
    handled++;
}
static void storm(void) {
    char *p = heap(64 << 10);
    stack_t s = {.ss_sp = p, .ss_size = 64 << 10}, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&s, NULL));
    struct sigaction a = {.sa_handler = on_timer, .sa_flags = SA_RESTART | SA_ONSTACK};
    OK(sigaction(SIGALRM, &a, NULL));
    a.sa_flags = SA_RESTART, OK(sigaction(SIGPROF, &a, NULL));
    a.sa_flags = 0, OK(sigaction(SIGVTALRM, &a, NULL));
    struct itimerval often = {{0, 400}, {0, 400}}, off = {{0, 0}, {0, 0}};
    handled = 0;
    OK(setitimer(ITIMER_REAL, &often, NULL)), OK(setitimer(ITIMER_PROF, &often, NULL));
    OK(setitimer(ITIMER_VIRTUAL, &often, NULL));
    while (handled < 1500) evict(p, 64 << 10), evict(area, 64 * PAGE), check(area, 16 * PAGE, 1);
    OK(setitimer(ITIMER_REAL, &off, NULL)), OK(setitimer(ITIMER_PROF, &off, NULL));
    OK(setitimer(ITIMER_VIRTUAL, &off, NULL));
    OK(sigaltstack(&none, NULL)), free(p);
}
/* One that is far too small for any handler: calls and faults work all the same. */
static void smallest(size_t bytes, int managed) {
    char *p = managed ? fresh(8)
                      : mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 0x77, 8 * PAGE);
    stack_t s = {.ss_sp = p + 8 * PAGE - bytes, .ss_size = bytes}, none = {.ss_flags = SS_DISABLE};
    OK(sigaltstack(&s, NULL));
    evict(area, PAGES * PAGE), check(area + 100 * PAGE, 300 * PAGE, 101);
    EQ(write(null, area, 9000), 9000), expect_exit(CHILD({ (void)*(volatile char *)area; }), 0);
    for (size_t i = 0; i < 8 * PAGE; i++) EQ(p[i], 0x77);
    OK(sigaltstack(&none, NULL)), OK(munmap(p, 8 * PAGE));
}
static void *all(void *arg) {
    size_t least = getauxval(AT_MINSIGSTKSZ);
    if (least < 2048) least = 2048;
    /* The dynamic linker, which looks a function up when it is first called, saves what a frame has, too. */
    size_t little = 2 * least + 3072;
    for (int managed = 0; managed < 2; managed++) {
        with_stack(little, managed), with_stack(8192 > little ? 8192 : little + 1024, managed);
        with_stack(64 << 10, managed);
        smallest(least, managed), at_once(managed);
    }
    return arg;
}
/* Memory calls take little of the caller's stack, of which there may be little. */
enum { DEEP = 12 << 10 };
static __attribute__((noinline)) void paint(void) {
    volatile unsigned char deep[DEEP];
    for (size_t i = 0; i < DEEP; i++) deep[i] = 0x77;
    __asm__ volatile("" : : "m"(deep));
}
static __attribute__((noinline)) size_t painted_over(void) {
    volatile unsigned char deep[DEEP];
    __asm__ volatile("" : "=m"(deep));
    size_t i = 0;
    while (i < DEEP && deep[i] == 0x77) i++;
    return DEEP - i;
}
static void shallow(void) {
    char *p = fresh(4);
    /* The first time, the dynamic linker looks the functions up, which takes more. */
    for (int k = 0; k < 2; k++) {
        paint(), OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
        size_t protect = painted_over();
        paint(), OK(madvise(p, PAGE, MADV_DONTNEED));
        size_t advise = painted_over();
        paint();
        void *q = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        size_t map = painted_over();
        CHECK(q != MAP_FAILED);
        paint(), OK(munmap(q, PAGE));
        size_t unmap = painted_over();
        CHECK(k == 0 || (protect < 1024 && advise < 1024 && map < 1024 && unmap < 1024));
    }
}
int main(void) {
    shallow();
    tmpdir();
    null = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY);
    CHECK(null >= 0 && zero >= 0);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    area = fresh(PAGES + 2), door = fresh(1);
    fill(area, PAGES * PAGE, 1);
    fill(area + 100 * PAGE, 300 * PAGE, 101);
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    OK(sigaction(SIGUSR1, &a, NULL)), OK(sigaction(SIGSEGV, &a, NULL));
    a = (struct sigaction){.sa_handler = nested};
    OK(sigaction(SIGUSR2, &a, NULL));
    all(NULL), storm();
    pthread_t t;
    OK(pthread_create(&t, NULL, all, NULL)), OK(pthread_join(t, NULL));
    puts("ok");
    return 0;
}
