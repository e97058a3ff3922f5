/* Ranges of memory that end beyond what a process can have, or wrap: the answers are the kernel's, and nothing of what they
 * begin with is harmed. */
#include "common.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { BYTES = 512 << 10 };
static const size_t END = (1UL << 47) - PAGE;
static char *area, *other;

static void unharmed(void) {
    check_noise(area, BYTES, 1), check_noise(other, BYTES, 2);
    evict(area, BYTES), evict(other, BYTES);
}
static void shown(const char *call, int which, long result) {
    printf("%s %d: %ld %d\n", call, which, result, result < 0 ? errno : 0);
    unharmed();
}
/* What kernels answer differently. */
static void refused(long result) { EQ(result, -1), unharmed(); }

int main(void) {
    tmpdir();
    area = guarded(BYTES / PAGE), other = guarded(BYTES / PAGE);
    noise(area, BYTES, 1), noise(other, BYTES, 2);
    size_t at = (size_t)area;
    unsigned char in_use[BYTES / PAGE + 1];
    const size_t lengths[] = {END - at + PAGE, END - at + 1, 1UL << 47, 1UL << 48, 1UL << 62, 1UL << 63, -1UL, -4095UL,
        -4096UL, -8192UL, -at, -at - PAGE, 1 - at};
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        size_t n = lengths[i];
        shown("munmap", i, syscall(SYS_munmap, area, n));
        shown("munmap in a page", i, syscall(SYS_munmap, area + 1, n));
        shown("mprotect", i, syscall(SYS_mprotect, area, n, PROT_READ | PROT_WRITE));
        shown("msync", i, syscall(SYS_msync, area, n, MS_ASYNC));
        shown("mincore", i, syscall(SYS_mincore, area, n, in_use));
        if (n + at < at) shown("madvise", i, syscall(SYS_madvise, area, n, MADV_DONTNEED));
        /* Where it is refused: EINVAL or, if the kernel looks at the limit of locked memory first, ENOMEM. */
        if (n + at < at) printf("mlock %d: %ld\n", i, syscall(SYS_mlock, area, n)), unharmed(), OK(munlock(area, BYTES));
        shown("mmap", i, syscall(SYS_mmap, area, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L));
        refused(syscall(SYS_mremap, area, n, PAGE, 0));
        refused(syscall(SYS_mremap, other, BYTES, n, MREMAP_MAYMOVE | MREMAP_FIXED, area));
        if (n < 1UL << 47) continue;
        refused(syscall(SYS_mremap, area, BYTES, n, MREMAP_MAYMOVE));
        refused(syscall(SYS_mremap, area, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, n & -PAGE));
    }
    /* Lengths that 32 bits of pages cannot tell from short ones. */
    for (int bits = 43; bits <= 46; bits++) {
        size_t n = (1UL << bits) - at % (1UL << bits);
        refused(syscall(SYS_mremap, area, n, n + PAGE, 0));
        refused(syscall(SYS_mremap, area, n, n + BYTES, MREMAP_MAYMOVE));
        refused(syscall(SYS_mremap, area, (1UL << bits) + PAGE, (1UL << bits) + BYTES, MREMAP_MAYMOVE));
    }
    /* A segment that may not be attached takes nothing's place. */
    expect_exit(CHILD({
        if (geteuid() == 0) OK(setuid(65534));
        int id = shmget(IPC_PRIVATE, 16 * PAGE, 0400);
        CHECK(id >= 0);
        void *got = shmat(id, area, SHM_REMAP);
        int error = errno;
        OK(shmctl(id, IPC_RMID, NULL));
        EQ(got, -1), EQ(error, EACCES);
        unharmed();
    }), 0);
    /* Two segments side by side are detached one at a time. */
    int id[2];
    for (int i = 0; i < 2; i++) {
        id[i] = shmget(IPC_PRIVATE, 16 * PAGE, 0600);
        CHECK(id[i] >= 0);
        char *to = area + (8 + 16 * i) * PAGE;
        char *got = shmat(id[i], to, SHM_REMAP);
        OK(shmctl(id[i], IPC_RMID, NULL));
        EQ(got, to);
        fill(to, 16 * PAGE, 30 + i);
    }
    expect_errno(shmdt(area + 16 * PAGE), EINVAL);
    OK(shmdt(area + 24 * PAGE));
    check(area + 8 * PAGE, 16 * PAGE, 30);
    expect_errno(mincore(area + 24 * PAGE, PAGE, in_use), ENOMEM), OK(mincore(area + 40 * PAGE, PAGE, in_use));
    OK(shmdt(area + 8 * PAGE));
    expect_errno(mincore(area + 8 * PAGE, PAGE, in_use), ENOMEM);
    check_noise(other, BYTES, 2);
    puts("ok");
    return 0;
}
