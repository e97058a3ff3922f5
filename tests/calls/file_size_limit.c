/* A limit of file size that a program gives itself stands for its own files, and for no others. */
#include "common.h"

enum { LIMIT = 1 << 20, HEAP = 8 << 20 };
static volatile sig_atomic_t seen;
static void handler(int s) { seen += s == SIGXFSZ; }

/* What does not compress goes to the swap file when it is evicted, and far past the limit. */
static void write_all_of(char *p, int seed) { noise(p, HEAP, seed), evict(p, HEAP); }
static void check_all_of(char *p, int seed) { check_noise(p, HEAP, seed), evict(p, HEAP); }

static void limited(int way) {
    struct rlimit r = {LIMIT, LIMIT};
    OK(setrlimit(RLIMIT_FSIZE, &r));
    if (way == 1) signal(SIGXFSZ, SIG_IGN);
    if (way == 2) signal(SIGXFSZ, handler);
    char *p = fresh(HEAP / PAGE);
    write_all_of(p, way), check_all_of(p, way);
    EQ(seen, 0);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    EQ(pwrite(fd, p, 2 * LIMIT, 0), LIMIT);
    EQ(pwrite(fd, p, 100, LIMIT - 50), 50);
    expect_exit(CHILD({ write_all_of(p, 9), check_all_of(p, 9); }), 0);
    check_all_of(p, way);
    if (way == 3) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (pwrite(fd, p, 1, LIMIT) == -1) _exit(9);
    }
    if (way) {
        expect_errno(pwrite(fd, p, 1, LIMIT), EFBIG);
        expect_errno(pwrite(fd, p, 8 << 20, LIMIT + 5), EFBIG);
        EQ(seen, way == 2 ? 2 : 0);
        expect_errno(ftruncate(fd, LIMIT + 1), EFBIG);
        EQ(seen, way == 2 ? 3 : 0);
    }
    struct stat st;
    OK(fstat(fd, &st)), EQ(st.st_size, LIMIT);
}
int main(void) {
    tmpdir();
    for (int way = 0; way < 3; way++) expect_exit(CHILD({ limited(way); }), 0);
    expect_signal(CHILD({ limited(3); }), SIGXFSZ);
    puts("ok");
    return 0;
}
