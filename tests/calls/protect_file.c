/* Pages that were closed, touched and opened again, in a process and in its forks: files are read over them and all around. */
#include "faults.h"

enum { PAGES = 512, AT = 212 };
static char *area;
static int file;
static volatile int jumps;
static volatile int handled;

static void handler(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    handled++;
    if (jumps) siglongjmp(fault_jump, 1);
    OK(mprotect((void *)((uintptr_t)i->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE));
}
static void closed(int prot, int evicted, int count) {
    handled = 0;
    OK(mprotect(area + AT * PAGE, count * PAGE, prot));
    if (evicted) evict(area + AT * PAGE, count * PAGE);
    if (!sigsetjmp(fault_jump, 1))
        for (volatile int k = 0; k < count; k++) {
            volatile char *p = area + (AT + k) * PAGE + 9;
            *p = *p;
        }
    EQ(handled, jumps ? 1 : count);
    OK(mprotect(area + AT * PAGE, count * PAGE, PROT_READ | PROT_WRITE));
}
static void transfers(int advice) {
    EQ(pwrite(file, area, PAGES * PAGE, 100), PAGES * PAGE);
    if (advice) OK(madvise(area, PAGES * PAGE, advice));
    EQ(pread(file, area, PAGES * PAGE, 100), PAGES * PAGE);
    check_noise(area, PAGES * PAGE, 3);
}
/* What was in several pieces while it was touched first stays so for the kernel, though its rights are the same again. */
static void pieces(void) {
    for (int at = 200; at < 232; at += 3)
        for (int way = 0; way < 6; way++) {
            char *p = fresh(PAGES);
            for (int k = 0; k < 3; k++) OK(mprotect(p + (at + 16 * k) * PAGE, 2 * PAGE, way & 1 ? PROT_READ : PROT_NONE));
            for (size_t i = 0; i < PAGES; i += way == 2 ? 7 : 1)
                if (!((i - at) % 16 < 2 && i >= (size_t)at && i < (size_t)at + 48)) p[i * PAGE] = 1;
            if (way & 1) (void)*(volatile char *)(p + at * PAGE);
            for (int k = 0; k < 3; k++) {
                OK(mprotect(p + (at + 16 * k) * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE));
                p[(at + 16 * k) * PAGE] = 2, p[(at + 16 * k + 1) * PAGE] = 2;
            }
            if (way & 2) OK(madvise(p, PAGES * PAGE, MADV_DONTNEED));
            if (way & 4) evict(p, PAGES * PAGE);
            EQ(pread(file, p, PAGES * PAGE, 100), PAGES * PAGE);
            check_noise(p, PAGES * PAGE, 3);
            OK(madvise(p, PAGES * PAGE, MADV_DONTNEED));
            struct iovec v[2] = {{p + (at - 3) * PAGE, 8 * PAGE}, {p + (at + 13) * PAGE, 8 * PAGE}};
            EQ(preadv(file, v, 2, 100), 16 * PAGE);
            check_noise(p + (at - 3) * PAGE, 8 * PAGE, 3);
            OK(madvise(p, PAGES * PAGE, MADV_DONTNEED));
            for (int k = -20; k < 30; k++) CHECK(p[(at + k) * PAGE] == 0);
            OK(munmap(p, PAGES * PAGE));
        }
}
/* A file that was mapped without access and is opened afterwards: a call goes on behind it. */
static void opened(void) {
    for (int shared = 0; shared < 2; shared++)
        for (int write = 0; write < 2; write++) {
            char *p = fresh(64);
            int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
            CHECK(other >= 0);
            noise(p, 64 * PAGE, 5);
            EQ(pwrite(other, p, 64 * PAGE, 0), 64 * PAGE);
            int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;
            CHECK(mmap(p + 20 * PAGE, 13 * PAGE, PROT_NONE, flags, other, 20 * PAGE) == p + 20 * PAGE);
            int prot = write ? PROT_READ | PROT_WRITE : PROT_READ;
            OK(mprotect(p + 20 * PAGE, 13 * PAGE, prot));
            evict(p, 64 * PAGE);
            EQ(pwrite(file, p + 9, 64 * PAGE - 18, 0), 64 * PAGE - 18);
            struct iovec v[2] = {{p + 30 * PAGE, 20 * PAGE}, {p, 25 * PAGE}};
            evict(p, 64 * PAGE);
            EQ(pwritev(file, v, 2, 0), 45 * PAGE);
            OK(mprotect(p + 22 * PAGE, PAGE, PROT_NONE));
            evict(p, 64 * PAGE);
            EQ(pwrite(file, p, 64 * PAGE, 0), 22 * PAGE);
            OK(mprotect(p + 22 * PAGE, PAGE, prot));
            check_noise(p, 64 * PAGE, 5);
            OK(munmap(p, 64 * PAGE));
            OK(close(other));
        }
}
int main(void) {
    tmpdir();
    area = fresh(PAGES);
    file = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0);
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    OK(sigaction(SIGSEGV, &a, NULL));
    static const int advices[] = {0, MADV_DONTNEED, MADV_PAGEOUT};
    for (int way = 0; way < 16; way++)
        for (int k = 0; k < 3; k++) {
            int prot = way & 1 ? PROT_READ : PROT_NONE, evicted = way >> 1 & 1;
            jumps = way >> 2 & 1;
            noise(area, PAGES * PAGE, 3);
            if (way & 8) evict(area + 40 * PAGE, 200 * PAGE);
            pid_t pid = CHILD({
                closed(prot, evicted, 2);
                transfers(advices[k]);
                expect_exit(CHILD({ closed(prot, evicted, 1), transfers(advices[k]); }), 0);
            });
            expect_exit(pid, 0);
            closed(prot, evicted, 3);
            transfers(advices[k]);
        }
    pieces();
    expect_exit(CHILD({ pieces(); }), 0);
    opened();
    puts("ok");
    return 0;
}
