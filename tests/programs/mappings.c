/* Forks with shared memory that cannot become the kernel's, because a process may have no more mappings; then with less of them.
 * Says how many forks failed. What the memory holds is the same all the time. */
#include "../calls/common.h"

enum { PAGES = 64, MANY = 80000 };

int main(void) {
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    fill(p, PAGES * PAGE, 9), evict_some(p, PAGES / 2 * PAGE);
    OK(mprotect(p + 40 * PAGE, 4 * PAGE, PROT_READ));
    char *many = (char *)syscall(SYS_mmap, NULL, MANY * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(many != MAP_FAILED);
    int failed = 0, made = 0;
    for (size_t i = 1; i < MANY && mprotect(many + i * PAGE, PAGE, PROT_NONE) == 0; i += 2);
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (child == 0) {
            check(p, PAGES * PAGE, 9);
            p[0] ^= 1;
            _exit(0);
        }
        if (child > 0) {
            expect_exit(child, 0);
            made++;
            p[0] ^= 1;
        } else {
            failed++;
        }
        check(p, PAGES * PAGE, 9);
        p[50 * PAGE] ^= 5, p[50 * PAGE] ^= 5;
        evict_some(p, 16 * PAGE);
        /* Two mappings less. */
        OK(mprotect(many + (1 + 4 * round) * PAGE, PAGE, PROT_READ));
    }
    printf("%d forks, %d failed\n", made, failed);
    return 0;
}
