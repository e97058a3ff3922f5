/* mmap: fixed, over managed memory, with a file, shared, populated, hinted, huge, executable; and its errors. */
#include "common.h"

#define MAP(p, n, prot, flags, fd, at) \
    EITHER(mmap(p, n, prot, flags, fd, at), syscall(SYS_mmap, p, n, (long)(prot), (long)(flags), (long)(fd), at))
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void test(void) {
    make_file("f", 8 * PAGE, 150);
    int fd = open("f", O_RDWR);
    char *p = (char *)MAP(NULL, 16 * PAGE, RW, ANON, -1, 0L);
    CHECK(p != MAP_FAILED);
    check_zero(p, 16 * PAGE);
    fill(p, 16 * PAGE, 151), evict(p, 16 * PAGE), check(p, 16 * PAGE, 151);

    /* Fixed over evicted pages: those become zero, the others stay. */
    evict(p, 16 * PAGE);
    EQ(MAP(p + 4 * PAGE, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0L), (long)(p + 4 * PAGE));
    check(p, 4 * PAGE, 151), check_zero(p + 4 * PAGE, 4 * PAGE), check_from(p + 8 * PAGE, 8 * PAGE, 151, 8 * PAGE);
    fill(p, 16 * PAGE, 152), evict(p, 16 * PAGE);
    EQ(MAP(p + 4 * PAGE, 4 * PAGE, RW, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0L), (long)(p + 4 * PAGE));
    check_zero(p + 4 * PAGE, 4 * PAGE);
    /* A file, private and shared, over managed pages, and anonymous memory over the file again. */
    fill(p, 16 * PAGE, 153), evict(p, 16 * PAGE);
    EQ(MAP(p + 2 * PAGE, 8 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0L), (long)(p + 2 * PAGE));
    check(p, 2 * PAGE, 153), check(p + 2 * PAGE, 8 * PAGE, 150), check_from(p + 10 * PAGE, 6 * PAGE, 153, 10 * PAGE);
    fill(p + 2 * PAGE, 8 * PAGE, 154), evict(p, 16 * PAGE), check(p + 2 * PAGE, 8 * PAGE, 154);
    EQ(MAP(p + 2 * PAGE, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 4 * PAGE), (long)(p + 2 * PAGE));
    check_from(p + 2 * PAGE, 4 * PAGE, 150, 4 * PAGE);
    p[2 * PAGE] ^= 1;
    char c;
    EQ(pread(fd, &c, 1, 4 * PAGE), 1), EQ(c, p[2 * PAGE]);
    p[2 * PAGE] ^= 1;
    EQ(MAP(p + 2 * PAGE, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0L), (long)(p + 2 * PAGE));
    check_zero(p + 2 * PAGE, 8 * PAGE);
    fill(p, 16 * PAGE, 155), evict(p, 16 * PAGE), check(p, 16 * PAGE, 155);

    /* Shared anonymous memory is seen by a child. */
    char *s = (char *)MAP(NULL, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0L);
    CHECK(s != MAP_FAILED);
    pid_t pid = fork();
    if (!pid) {
        fill(s, 4 * PAGE, 156);
        _exit(0);
    }
    expect_exit(pid, 0), check(s, 4 * PAGE, 156);

    char *populated = (char *)MAP(NULL, 64 * PAGE, RW, ANON | MAP_POPULATE, -1, 0L);
    CHECK(populated != MAP_FAILED), check_zero(populated, 64 * PAGE);
    char *read_only = (char *)MAP(NULL, 4 * PAGE, PROT_READ, ANON, -1, 0L);
    check_zero(read_only, 4 * PAGE);
    /* A hint that is free is taken; one in use is not. */
    char *big = (char *)MAP(NULL, 64 * PAGE, RW, ANON, -1, 0L);
    OK(munmap(big, 64 * PAGE));
    char *hinted = (char *)MAP(big, 16 * PAGE, RW, ANON, -1, 0L);
    CHECK(hinted != MAP_FAILED), fill(hinted, 16 * PAGE, 157), evict(hinted, 16 * PAGE);
    char *elsewhere = (char *)MAP(hinted, 16 * PAGE, RW, ANON, -1, 0L);
    CHECK(elsewhere != MAP_FAILED && elsewhere != hinted), check(hinted, 16 * PAGE, 157);
    expect_errno(MAP(hinted, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0L), EEXIST);
    expect_errno(MAP(hinted + 15 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0L), EEXIST);
    check(hinted, 16 * PAGE, 157);
    OK(munmap(elsewhere, 16 * PAGE));
    EQ(MAP(elsewhere, 4 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0L), (long)elsewhere),
        check_zero(elsewhere, 4 * PAGE);

    /* More than the machine has, used here and there. */
    size_t huge = 64UL << 30;
    char *sparse = (char *)MAP(NULL, huge, RW, ANON | MAP_NORESERVE, -1, 0L);
    CHECK(sparse != MAP_FAILED);
    for (size_t i = 0; i < 200; i++) fill(sparse + i * (huge / 200 & ~(PAGE - 1)) + 4000, 200, i);
    pressure(8);
    for (size_t i = 0; i < 200; i++) check(sparse + i * (huge / 200 & ~(PAGE - 1)) + 4000, 200, i);
    OK(munmap(sparse, huge));
    /* A length that is no multiple of a page. */
    char *odd = (char *)MAP(NULL, PAGE + 1, RW, ANON, -1, 0L);
    fill(odd, 2 * PAGE, 158), evict(odd, 2 * PAGE), check(odd, 2 * PAGE, 158), OK(munmap(odd, PAGE + 1));
    /* Low addresses, stacks, code. */
    char *low = (char *)MAP(NULL, PAGE, RW, ANON | MAP_32BIT, -1, 0L);
    CHECK(low != MAP_FAILED && (uintptr_t)low < 1UL << 31), fill(low, PAGE, 159), evict(low, PAGE),
        check(low, PAGE, 159);
    char *stack = (char *)MAP(NULL, 16 * PAGE, RW, ANON | MAP_STACK | MAP_NORESERVE, -1, 0L);
    fill(stack, 16 * PAGE, 160), evict(stack, 16 * PAGE), check(stack, 16 * PAGE, 160);
    unsigned char *code = (unsigned char *)MAP(NULL, PAGE, RW | PROT_EXEC, ANON, -1, 0L);
    static const unsigned char returns_42[] = {0xb8, 42, 0, 0, 0, 0xc3};
    memcpy(code, returns_42, sizeof returns_42), evict(code, PAGE);
    EQ(((int (*)(void))code)(), 42);

    evict(p, 16 * PAGE);
    expect_errno(MAP(NULL, 0L, RW, ANON, -1, 0L), EINVAL);
    expect_errno(MAP(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0L), EINVAL);
    expect_errno(MAP(NULL, PAGE, RW, MAP_PRIVATE, fd, 7L), EINVAL);
    expect_errno(MAP(p + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0L), EINVAL);
    expect_errno(MAP(NULL, PAGE, RW, MAP_PRIVATE, -1, 0L), EBADF);
    expect_errno(MAP(NULL, 1L << 47, RW, ANON | MAP_NORESERVE, -1, 0L), ENOMEM);
    expect_errno(MAP(NULL, ~0UL - PAGE, RW, ANON, -1, 0L), ENOMEM);
    expect_errno(MAP((void *)(1UL << 47), PAGE, RW, ANON | MAP_FIXED, -1, 0L), ENOMEM);
    int only = open("f", O_RDONLY);
    expect_errno(MAP(NULL, PAGE, RW, MAP_SHARED, only, 0L), EACCES);
    check(p, 16 * PAGE, 155);
    close(only), close(fd), munmap(p, 16 * PAGE), munmap(s, 4 * PAGE), munmap(populated, 64 * PAGE);
    munmap(read_only, 4 * PAGE), munmap(hinted, 16 * PAGE), munmap(elsewhere, 4 * PAGE), munmap(low, PAGE);
    munmap(stack, 16 * PAGE), munmap(code, PAGE);
}
BOTH_WAYS(test)
