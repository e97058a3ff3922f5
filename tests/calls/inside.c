/* Calls that the C library makes by itself, for stdio and for directories: with buffers that are there and that are out, longer ones,
 * interrupted, cancelled, in forked children, and beside a function of the program's own of that name, which the C library does not call. */
#include "common.h"
#include <dirent.h>
#include <semaphore.h>

enum { PAGES = 64, TURNED = 10240, FILES = 700 };
static char *area;
static volatile int handled, own_calls;
static int ends[2];

/* Nobody inside of the C library calls this one. */
ssize_t write(int fd, const void *from, size_t len) {
    own_calls++;
    return syscall(SYS_write, fd, from, len);
}

static void *turns_over(void *stop) {
    turn_over(stop, TURNED, area, PAGES);
    return NULL;
}
static void counts(int signal) {
    (void)signal;
    char *mine = area + 60 * PAGE;
    int saved = errno;
    *mine = 1;
    CHECK(syscall(SYS_pread64, ends[0], mine, 1, 0) == -1);
    handled++, errno = saved;
}

/* What is written by stdio is read back by it: buffers of a page and some, and of more than a window. */
static void stdio(const char *name, size_t buffer, size_t rounds) {
    char *mine = area + 3 * PAGE - 100, *back = area + 30 * PAGE - 7;
    FILE *f = fopen(name, "w+");
    CHECK(f);
    char *to = buffer > 8 * PAGE ? fresh(buffer / PAGE) : area + 10 * PAGE + 11;
    OK(setvbuf(f, to, _IOFBF, buffer));
    size_t total = 0;
    for (unsigned round = 0; round < rounds; round++) {
        size_t n = 1 + round * 37 % 9000;
        fill(mine, n, round), total += n;
        EQ(fwrite(mine, 1, n, f), n);
    }
    OK(fflush(f));
    EQ(ftell(f), (long)total);
    rewind(f);
    for (unsigned round = 0; round < rounds; round++) {
        size_t n = 1 + round * 37 % 9000;
        memset(back, 0, n);
        EQ(fread(back, 1, n, f), n);
        check(back, n, round);
    }
    EQ(fgetc(f), EOF), OK(ferror(f));
    /* At once, past the buffer. */
    char *all = fresh(total / PAGE + 1);
    rewind(f), EQ(fread(all, 1, total, f), total);
    check(all, 1, 0);
    OK(munmap(all, (total / PAGE + 1) * PAGE));
    OK(fclose(f));
}
static void directories(void) {
    OK(mkdir("files", 0700));
    for (int n = 0; n < FILES; n++) {
        char name[40];
        snprintf(name, sizeof name, "files/a file of this number %d", n);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0), OK(close(fd));
    }
    for (int round = 0; round < 30; round++) {
        DIR *d = opendir("files");
        CHECK(d);
        char seen[FILES] = {0};
        int files = 0, n;
        for (struct dirent *e; (e = readdir(d));) {
            if (sscanf(e->d_name, "a file of this number %d", &n) != 1) continue;
            CHECK(n >= 0 && n < FILES && !seen[n]++), files++;
            if (round % 3 == 0 && files % 50 == 0) evict_some(e, PAGE);
        }
        EQ(files, FILES);
        OK(closedir(d));
    }
    char *to = area + 40 * PAGE;
    int fd = open("files", O_RDONLY | O_DIRECTORY);
    evict_some(to, 8 * PAGE);
    CHECK(fd >= 0), CHECK(getdents64(fd, to, 8 * PAGE) > 0), OK(close(fd));
    expect_errno(getdents64(-1, to, PAGE), EBADF), expect_errno(getdents64(ends[0], to, PAGE), ENOTDIR);
}

static sem_t begun;
static volatile int cleaned;
static void cleanup(void *arg) {
    EQ(*(int *)arg, 7);
    cleaned++;
}
static void *reads_for_ever(void *arg) {
    int kept = 7;
    char *to = area + 20 * PAGE;
    FILE *f = arg;
    pthread_cleanup_push(cleanup, &kept);
    *to = 0;
    OK(sem_post(&begun));
    (void)!fread(to, 1, 10, f);
    die("%s:%d: something came of nothing", __FILE__, __LINE__);
    pthread_cleanup_pop(0);
    return NULL;
}
/* A thread that waits in stdio is cancelled there. */
static void cancelled(void) {
    OK(sem_init(&begun, 0, 0));
    for (int round = 0; round < 20; round++) {
        int pipes[2];
        OK(pipe(pipes));
        FILE *f = fdopen(pipes[0], "r");
        CHECK(f), OK(setvbuf(f, area + 25 * PAGE, _IOFBF, 4096));
        if (round % 2) evict_some(area + 25 * PAGE, PAGE);
        pthread_t t;
        void *result;
        OK(pthread_create(&t, NULL, reads_for_ever, f));
        OK(sem_wait(&begun)), sleep_ms(round % 3 * 5);
        OK(pthread_cancel(t)), OK(pthread_join(t, &result));
        CHECK(result == PTHREAD_CANCELED), EQ(cleaned, round + 1);
        OK(close(pipes[0])), OK(close(pipes[1]));
    }
}
static void waits_and_is_interrupted(void) {
    FILE *f = fdopen(dup(ends[0]), "r");
    CHECK(f), OK(setvbuf(f, area + 25 * PAGE, _IOFBF, 4096));
    char *to = area + 28 * PAGE;
    struct sigaction restarts = {.sa_handler = counts, .sa_flags = SA_RESTART};
    OK(sigaction(SIGALRM, &restarts, NULL));
    handled = 0, ring(500);
    int child = fork();
    if (child == 0) {
        ring(0);
        char *line = area + 33 * PAGE;
        for (int n = 0; n < 200; n++) {
            if (n % 20 == 0) sleep_ms(5);
            sprintf(line, "line %d\n", n), evict_some(area + 33 * PAGE, PAGE);
            EQ(syscall(SYS_write, ends[1], line, strlen(line)), (long)strlen(line));
        }
        _exit(0);
    }
    for (int n = 0; n < 200; n++) {
        int got;
        CHECK(fgets(to, PAGE, f)), EQ(sscanf(to, "line %d", &got), 1), EQ(got, n);
    }
    ring(0);
    int status;
    EQ(waitpid(child, &status, 0), child), EQ(status, 0), CHECK(handled > 10);
    OK(fclose(f));
}
static void in_children(void) {
    for (int n = 0; n < 20; n++) {
        FILE *f = fopen("of a child", "w");
        CHECK(f), OK(setvbuf(f, area + 25 * PAGE, _IOFBF, 4096));
        if (n % 2) evict_some(area + 25 * PAGE, PAGE);
        expect_exit(CHILD(CHECK(fprintf(f, "%0*d", 6000, n) == 6000); OK(fclose(f))), 0);
        OK(fclose(f));
        struct stat s;
        OK(stat("of a child", &s)), EQ(s.st_size, 6000);
    }
}

int main(void) {
    tmpdir();
    area = fresh(PAGES);
    memset(area, 0, PAGES * PAGE);
    OK(pipe(ends));
    volatile int stop = 0;
    pthread_t t;
    stdio("alone", 4096, 400);
    directories();
    OK(pthread_create(&t, NULL, turns_over, (void *)&stop));
    stdio("file", 4096, 1000), stdio("larger", 5 * PAGE + 3, 1000), stdio("large", 1 << 21, 1000);
    cancelled();
    stop = 1;
    OK(pthread_join(t, NULL));
    waits_and_is_interrupted(), in_children();
    EQ(own_calls, 0);
    syscall(SYS_write, 1, "ok\n", 3);
    return 0;
}
