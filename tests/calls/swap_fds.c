/* A program's descriptors are its own, whatever memory it uses: it closes all it can, opens many, uses them up, changes its
 * root; its files keep their size and content, and every number that it was given can be closed. */
#include "common.h"
#include <dirent.h>
#include <sys/prctl.h>

enum { HEAP = 38 << 20, MANY = 1200, TEXT = 64 << 10 };
static char *area;

/* Content that no compression makes small: most of it has to leave memory. */
static void work(uint64_t seed) {
    if (!area) area = fresh(HEAP / PAGE);
    noise(area, HEAP, seed), check_noise(area, HEAP, seed);
}
static void raise_limit(void) {
    struct rlimit r;
    OK(getrlimit(RLIMIT_NOFILE, &r));
    r.rlim_cur = r.rlim_max < 4096 ? r.rlim_max : 4096;
    OK(setrlimit(RLIMIT_NOFILE, &r));
}
static int open_many(int *fd, const char *name) {
    int n = 0;
    while (n < MANY && (fd[n] = open(name, O_RDWR | O_CREAT, 0600)) >= 0) n++;
    CHECK(n > 900);
    return n;
}
static void unharmed(int fd, const char *text) {
    struct stat st;
    OK(fstat(fd, &st)), EQ(st.st_size, TEXT);
    static char now[TEXT];
    EQ(pread(fd, now, TEXT, 0), TEXT);
    OK(memcmp(now, text, TEXT));
}
/* Closes all, opens its own file under as many numbers as it gets, and goes on needing memory. */
static void closes_all(int early, int range) {
    static int fd[MANY], before[MANY];
    char *text = malloc(TEXT);
    memset(text, 'V', TEXT);
    raise_limit();
    /* So many that what is opened later lies beyond the numbers of a usual process. */
    open_many(before, "/dev/null");
    if (early) work(1);
    if (range)
        CHECK(close_range(3, ~0U, 0) == 0);
    else
        for (int i = 3; i < 4096; i++) close(i);
    int n = open_many(fd, "mine");
    EQ(pwrite(fd[0], text, TEXT, 0), TEXT);
    work(2);
    for (int i = 0; i < n; i += 100) unharmed(fd[i], text);
    pid_t pid = CHILD({
        work(3);
        for (int i = 0; i < n; i += 100) unharmed(fd[i], text);
        /* Closed under the engine's feet once more. */
        for (int i = 0; i < n; i++) OK(close(fd[i]));
        for (int i = 3; i < 4096; i++) close(i);
        work(4);
    });
    expect_exit(pid, 0);
    work(5);
    for (int i = 0; i < n; i++) OK(close(fd[i]));
    n = open_many(fd, "mine");
    unharmed(fd[n - 1], text);
    work(6);
    unharmed(fd[0], text);
}
/* Numbers that open() gave are the program's: close, dup2, dup3, fcntl, close_range work on every one. */
static void own_numbers(void) {
    static int fd[MANY], other[2];
    raise_limit();
    work(1);
    OK(pipe(other));
    for (int turn = 0; turn < 2; turn++) {
        int n = open_many(fd, "/dev/null");
        for (int i = 0; i < n; i++) {
            struct stat st;
            EQ(dup2(other[1], fd[i]), fd[i]);
            OK(fstat(fd[i], &st)), CHECK(S_ISFIFO(st.st_mode));
            EQ(fcntl(fd[i], F_GETFD), 0);
            EQ(dup3(other[1], fd[i], O_CLOEXEC), fd[i]), EQ(fcntl(fd[i], F_GETFD), FD_CLOEXEC);
        }
        work(2 + turn);
        if (turn == 0)
            for (int i = 0; i < n; i++) OK(close(fd[i]));
        else
            for (int i = 0; i < n; i++) OK(close_range(fd[i], fd[i], 0));
        for (int i = 0; i < n; i++) expect_errno(close(fd[i]), EBADF);
        /* A pipe whose other ends are all closed says so. */
        expect_exit(CHILD({
            close(other[1]);
            char byte;
            struct pollfd p = {other[0], POLLIN, 0};
            CHECK(poll(&p, 1, 0) == 0 || read(other[0], &byte, 1) == 0);
        }), 0);
    }
}
static void used_up(int fork_too) {
    int last = -1, fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    EQ(errno, EMFILE);
    CHECK(last > 500);
    work(1);
    expect_errno(open("/dev/null", O_RDONLY), EMFILE);
    if (fork_too) expect_exit(CHILD({ work(2); }), 0);
    /* Nobody else needs a number, not for a moment. */
    for (int i = 0; i < 1000; i++) {
        for (size_t at = 0; at < HEAP; at += HEAP / 100) ((volatile char *)area)[(at + i * 4096) % HEAP];
        OK(close(last)), EQ(open("/dev/null", O_RDONLY), last);
    }
    work(3);
}
static void lowered(void) {
    for (int i = 0; i < 16; i++) CHECK(open("/dev/null", O_RDONLY) >= 0);
    struct rlimit few = {32, 32};
    OK(setrlimit(RLIMIT_NOFILE, &few));
    work(1);
    expect_errno(dup2(0, 32), EBADF);
    expect_exit(CHILD({ work(2); }), 0);
    for (int i = 3; i < 4096; i++) close(i);
    EQ(open("/dev/null", O_RDONLY), 3);
    expect_exit(CHILD({ work(2); }), 0);
    work(3);
}
/* Tried are the numbers that programs get, and those at the end of what may be open, where an engine would keep its own. */
static void nothing_leads_out(void) {
    struct rlimit r;
    OK(getrlimit(RLIMIT_NOFILE, &r));
    int end = r.rlim_max < 1 << 20 ? r.rlim_max : 1 << 20;
    for (int i = 3; i < end; i++) {
        if (i == 8192 && end > 16384) i = end - 8192;
        CHECK(openat(i, "..", O_PATH) < 0);
    }
}
static void other_root(void) {
    OK(mkdir("jail", 0755));
    if (chroot("jail")) return;
    OK(chdir("/"));
    work(1);
    expect_exit(CHILD({ work(2); }), 0);
    work(3);
    /* Without rights it is confined there: nothing that is open leads out. */
    OK(setuid(65534));
    for (int turn = 0; turn < 2; turn++) {
        nothing_leads_out();
        if (turn == 0) expect_exit(CHILD(nothing_leads_out()), 0);
        work(4);
    }
}
/* Who closes what a list of his descriptors has, can. */
static void listed(void) {
    for (int turn = 0; turn < 2; turn++) {
        work(1 + turn);
        DIR *list = opendir("/proc/self/fd");
        CHECK(list);
        for (struct dirent *entry; (entry = readdir(list));) {
            int fd = atoi(entry->d_name);
            if (*entry->d_name != '.' && fd > 2 && fd != dirfd(list)) OK(close(fd));
        }
        OK(closedir(list));
    }
    work(3);
}
/* The first to need more than there is, is a child that borrows this memory. */
static void borrowed(void) {
    area = fresh(HEAP / PAGE);
    pid_t pid = vfork();
    if (!pid) {
        noise(area, HEAP, 1);
        _exit(0);
    }
    expect_exit(pid, 0);
    check_noise(area, HEAP, 1);
    pid = vfork();
    if (!pid) {
        for (int i = 3; i < 4096; i++) close(i);
        noise(area, HEAP, 2);
        _exit(0);
    }
    expect_exit(pid, 0);
    check_noise(area, HEAP, 2);
    expect_exit(CHILD({ work(2); }), 0);
    work(3);
}
int main(int argc, char **argv) {
    alarm(300);
    char self[PATH_MAX];
    if (argc == 1) {
        tmpdir();
        CHECK(realpath("/proc/self/exe", self));
        /* Each in a program that has not used any memory yet. */
        const char *const ways[] = {"early", "late", "range", "own", "used", "forked", "lowered", "root", "named", "borrowed"};
        int failed = 0;
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            unlink("mine");
            pid_t pid = CHILD(execl(self, self, ways[i], NULL));
            int status;
            EQ(waitpid(pid, &status, 0), pid);
            if (status) fprintf(stderr, "%s ended with status %#x\n", ways[i], status), failed++;
        }
        EQ(failed, 0);
        puts("ok");
        return 0;
    }
    switch (argv[1][0] * 256 + argv[1][1]) {
    case 'e' * 256 + 'a': closes_all(1, 0); break;
    case 'l' * 256 + 'a': closes_all(0, 0); break;
    case 'r' * 256 + 'a': closes_all(1, 1); break;
    case 'o' * 256 + 'w': own_numbers(); break;
    case 'u' * 256 + 's': used_up(0); break;
    case 'f' * 256 + 'o': used_up(1); break;
    case 'l' * 256 + 'o': lowered(); break;
    case 'r' * 256 + 'o': other_root(); break;
    case 'n' * 256 + 'a': listed(); break;
    default: borrowed();
    }
    return 0;
}
