/* Limits of address space and of data that a program gives itself count what it maps, and nothing else. */
#include "common.h"

enum { PART = 64 };
static void *nothing(void *arg) { return arg; }
static __attribute__((noinline)) int deep(int n) {
    volatile char room[65536];
    memset((void *)room, n, sizeof room);
    return n ? deep(n - 1) + room[5] : 0;
}
static void lives(void) {
    char *p = malloc(20 * MIB);
    CHECK(p);
    noise(p, 20 * MIB, 1), check_noise(p, 20 * MIB, 1);
    pthread_t t;
    OK(pthread_create(&t, NULL, nothing, NULL)), OK(pthread_join(t, NULL));
    expect_exit(CHILD({ check_noise(p, 20 * MIB, 1); }), 0);
    FILE *f = popen("echo from the shell", "r");
    char line[100];
    CHECK(f && fgets(line, sizeof line, f));
    OK(strcmp(line, "from the shell\n")), OK(pclose(f));
    deep(40);
    char *q = fresh(8 * MIB / PAGE);
    noise(q, 8 * MIB, 2), q = mremap(q, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    check_noise(q, 8 * MIB, 2), OK(munmap(q, 16 * MIB));
    check_noise(p, 20 * MIB, 1), free(p);
}
static void limited(int resource, size_t bytes) {
    struct rlimit r = {bytes, bytes}, now;
    OK(setrlimit(resource, &r));
    OK(getrlimit(resource, &now)), EQ(now.rlim_cur, bytes), EQ(now.rlim_max, bytes);
    lives();
    /* Theirs counts. */
    CHECK(mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    EQ(errno, ENOMEM);
    CHECK(!malloc(bytes));
    for (int turn = 0; turn < 2; turn++) {
        static char *parts[256];
        size_t n = 0;
        while (n < 256 && (parts[n] = mmap(NULL, PART * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                               0)) != MAP_FAILED)
            n++;
        EQ(errno, ENOMEM);
        size_t most = bytes / MIB / PART;
        if (n > most || n + 4 < most) die("limit %d: %zu parts of %d MiB, not about %zu", resource, n, PART, most);
        CHECK(mremap(parts[0], PART * MIB, 2 * PART * MIB, MREMAP_MAYMOVE) == MAP_FAILED), EQ(errno, ENOMEM);
        for (size_t i = 0; i < n; i++) OK(munmap(parts[i], PART * MIB));
    }
    lives();
    /* A program that is executed has the limit, too. */
    char text[64];
    snprintf(text, sizeof text, "%zu", bytes);
    char self[PATH_MAX];
    CHECK(realpath("/proc/self/exe", self));
    expect_exit(CHILD(execl(self, self, resource == RLIMIT_AS ? "as" : "data", text, NULL)), 7);
}
int main(int argc, char **argv) {
    tmpdir();
    if (argc == 3) {
        struct rlimit now;
        OK(getrlimit(strcmp(argv[1], "as") ? RLIMIT_DATA : RLIMIT_AS, &now));
        EQ(now.rlim_cur, atol(argv[2]));
        lives();
        exit(7);
    }
    expect_exit(CHILD({ limited(RLIMIT_AS, 2048 * MIB); }), 0);
    expect_exit(CHILD({ limited(RLIMIT_DATA, 1024 * MIB); }), 0);
    puts("ok");
    return 0;
}
