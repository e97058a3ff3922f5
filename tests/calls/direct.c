/* Calls on memory that is there, which are made without a trap: while other memory goes out all the time, interrupted by handlers
 * that return, make calls, fork or never come back, cancelled, and of more threads at once than can have one in progress. */
#include "common.h"
#include <semaphore.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/stat.h>

enum { PAGES = 64, ROUNDS = 2000, THREADS = 100, TURNED = 10240 };
static char *area;
static int ends[2];
static volatile int handled, in_handler[2];
static sigjmp_buf back;

static sem_t opening;
static volatile int opens_cancelled;
static void cleanup_of_open(void *arg) {
    EQ(*(int *)arg, 7);
    opens_cancelled++;
}
static void *turns_over(void *stop) {
    turn_over(stop, TURNED, area, PAGES);
    return NULL;
}
/* Every function, whose memory is there most of the time, and goes at any instant. */
static void every_function(void) {
    volatile int stop = 0;
    pthread_t t;
    OK(pthread_create(&t, NULL, turns_over, (void *)&stop));
    int fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600), queue = epoll_create1(0);
    CHECK(fd >= 0 && queue >= 0);
    struct epoll_event *events = (struct epoll_event *)(area + 40 * PAGE), on = {.events = EPOLLIN, .data.u64 = 77};
    *events = on;
    OK(epoll_ctl(queue, EPOLL_CTL_ADD, ends[1], events));
    char *from = area + 3 * PAGE - 100, *to = area + 20 * PAGE - 333;
    struct pollfd *p = (struct pollfd *)(area + 50 * PAGE - sizeof *p);
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t n = 1 + round * 7 % 9000;
        fill(from, n, round), memset(to, 0, n);
        struct iovec *v = (struct iovec *)(area + 30 * PAGE - 16), w[2] = {{to, n / 2}, {to + n / 2, n - n / 2}};
        v[0] = (struct iovec){from, n / 3}, v[1] = (struct iovec){from + n / 3, n - n / 3};
        struct msghdr *m = (struct msghdr *)(area + 33 * PAGE), back = {.msg_iov = w, .msg_iovlen = 2};
        memset(m, 0, sizeof *m), m->msg_iov = v, m->msg_iovlen = 2;
        *p = (struct pollfd){ends[1], POLLIN, 0};
        EQ(poll(p, 1, 0), 0), EQ(epoll_wait(queue, events, 100, 0), 0);
        switch (round % 6) {
        case 0: EQ(write(ends[0], from, n), n); break;
        case 1: EQ(send(ends[0], from, n, 0), n); break;
        case 2: EQ(writev(ends[0], v, 2), n); break;
        case 3: EQ(sendmsg(ends[0], m, 0), n); break;
        case 4: EQ(sendto(ends[0], from, n, 0, NULL, 0), n); break;
        default: EQ(pwrite(fd, from, n, round), n), EQ(pread(fd, to, n, round), n);
        }
        if (round % 6 < 5) {
            EQ(poll(p, 1, -1), 1), EQ(p->revents, POLLIN);
            EQ(epoll_wait(queue, events, 100, -1), 1), EQ(events->data.u64, 77);
            switch (round % 5) {
            case 0: EQ(read(ends[1], to, n), n); break;
            case 1: EQ(recv(ends[1], to, n, MSG_WAITALL), n); break;
            case 2: EQ(readv(ends[1], w, 2), n); break;
            case 3: EQ(recvmsg(ends[1], &back, 0), n); break;
            default: EQ(recvfrom(ends[1], to, n, 0, NULL, NULL), n);
            }
        }
        check(to, n, round);
    }
    stop = 1;
    OK(pthread_join(t, NULL));
    OK(close(fd)), OK(close(queue));
}

/* Functions that name files, whose paths and results are there most of the time, end at the last byte of what is mapped, and are too long. */
static void paths(void) {
    volatile int stop = 0;
    pthread_t t;
    OK(pthread_create(&t, NULL, turns_over, (void *)&stop));
    int here = open(".", O_RDONLY | O_DIRECTORY), back;
    CHECK(here >= 0);
    char *last = fresh(2);
    OK(munmap(last + PAGE, PAGE));
    for (unsigned round = 0; round < ROUNDS / 4; round++) {
        char *of[] = {area + 5 * PAGE - 1 - round % 12, area + 6 * PAGE, last + PAGE - 11};
        char *name = of[round % 3], *to = area + 9 * PAGE - round % 200, *link = area + 13 * PAGE - round % 12;
        strcpy(name, "some-name."), strcpy(link, "some-link.");
        struct stat *s = (struct stat *)(area + 20 * PAGE - 8 * (round % 18)), plain;
        struct statx *x = (struct statx *)(area + 30 * PAGE - 8 * (round % 32));
        expect_errno(stat(name, s), ENOENT), expect_errno(open(name, O_RDONLY), ENOENT);
        expect_errno(access(name, R_OK), ENOENT);
        mode_t mode = round % 2 ? 0640 : 0604;
        int fd = round % 4 < 2 ? open(name, O_CREAT | O_RDWR | O_EXCL, mode) : openat(here, name, O_CREAT | O_RDWR, mode);
        CHECK(fd >= 0);
        EQ(write(fd, "12345", 5), 5);
        OK(fstat(fd, &plain)), memset(s, 0, sizeof *s), OK(fstat(fd, s)), EQ(s->st_ino, plain.st_ino);
        memset(s, 0, sizeof *s), OK(stat(name, s));
        EQ(s->st_ino, plain.st_ino), EQ(s->st_size, 5), EQ(s->st_mode & 0777, mode);
        memset(s, 0, sizeof *s), OK(fstatat(here, name, s, 0)), EQ(s->st_ino, plain.st_ino);
        memset(x, 0, sizeof *x), OK(statx(here, name, 0, STATX_INO, x)), EQ(x->stx_ino, plain.st_ino);
        EQ(close(fd), 0);
        OK(symlinkat("some-name.", here, link));
        OK(lstat(link, s)), CHECK(S_ISLNK(s->st_mode)), OK(stat(link, s)), CHECK(S_ISREG(s->st_mode));
        memset(to, 1, 20), EQ(readlink(link, to, 20), 10), CHECK(!memcmp(to, "some-name.\1", 11));
        memset(to, 1, 20), EQ(readlinkat(here, link, to, 4), 4), CHECK(!memcmp(to, "some\1", 5));
        OK(access(link, R_OK)), OK(unlink(link)), OK(rename(name, link)), expect_errno(access(name, F_OK), ENOENT);
        back = open(link, O_RDONLY);
        CHECK(back >= 0), EQ(read(back, to, 20), 5), CHECK(!memcmp(to, "12345", 5)), OK(close(back));
        OK(unlinkat(here, link, 0)), OK(mkdir(name, 0700)), OK(unlinkat(here, name, AT_REMOVEDIR));
        CHECK(!strcmp(name, "some-name."));
    }
    char *path = area + 40 * PAGE - 100;
    struct stat *s = (struct stat *)(area + 50 * PAGE), plain;
    memset(path, 'a', 5000), path[5000] = 0;
    expect_errno(stat(path, s), ENAMETOOLONG), expect_errno(open(path, O_RDONLY), ENAMETOOLONG);
    path[4095] = 0;
    for (int i = 1; i < 4095; i += 2) path[i] = '/', path[i - 1] = '.';
    path[4094] = '.';
    OK(stat(path, s)), CHECK(S_ISDIR(s->st_mode)), OK(access(path, R_OK));
    memset(last, '/', PAGE);
    expect_errno(stat(last + 1, s), EFAULT), expect_errno(access(last + PAGE - 1, F_OK), EFAULT);
    expect_errno(stat(".", (struct stat *)(last + PAGE - 8)), EFAULT);
    path[0] = 0;
    expect_errno(stat(path, s), ENOENT), OK(fstatat(here, path, s, AT_EMPTY_PATH)), CHECK(S_ISDIR(s->st_mode));
    int hidden = 0;
    for (int fd = 900; fd < 1024; fd++) {
        /* Outswap's own are nowhere, also for who asks with memory that is there. */
        int is_open = fstat(fd, &plain) == 0;
        EQ(fstat(fd, s) == 0, is_open);
        EQ(fstatat(fd, path, s, AT_EMPTY_PATH) == 0, is_open);
        hidden += !is_open && fcntl(fd, F_GETFD) >= 0;
    }
    EQ(hidden > 0, getenv("OUTSWAP_CONTROL") != NULL);
    stop = 1;
    OK(pthread_join(t, NULL)), OK(munmap(last, PAGE)), OK(close(here));
}
/* Opening a pipe waits for the other end. */
static void *opens_and_waits(void *arg) {
    int kept = 7;
    pthread_cleanup_push(cleanup_of_open, &kept);
    OK(sem_post(&opening));
    (void)!open(arg, O_RDONLY);
    pthread_cleanup_pop(0);
    return NULL;
}
static void cancelled_while_it_opens(void) {
    char *name = strcpy(area + 4 * PAGE - 3, "pipe");
    pthread_t t;
    void *result;
    OK(mkfifo(name, 0600)), OK(sem_init(&opening, 0, 0));
    OK(pthread_create(&t, NULL, opens_and_waits, name));
    OK(sem_wait(&opening)), sleep_ms(20);
    OK(pthread_cancel(t)), OK(pthread_join(t, &result));
    CHECK(result == PTHREAD_CANCELED), EQ(opens_cancelled, 1);
    OK(unlink(name));
}

/* The ring that is the last one. A handler that takes longer than it is to the next one would come again and again. */
static volatile int last_ring;
static void makes_calls(int signal) {
    (void)signal;
    if (handled + 1 == last_ring) ring(0);
    char *mine = area + 60 * PAGE;
    *mine = (char)++handled;
    EQ(write(in_handler[1], mine, 1), 1), *mine = 0;
    EQ(read(in_handler[0], mine, 1), 1), EQ(*mine, (char)handled);
}
static void leaves(int signal) {
    (void)signal;
    handled++;
    siglongjmp(back, 1);
}
static void forks(int signal) {
    (void)signal;
    if (++handled == last_ring) ring(0);
    int saved = errno;
    expect_exit(CHILD(check_from(area, PAGE, 5, 0); EQ(write(in_handler[1], area, 100), 100); char *to = area + 9 * PAGE;
                      EQ(read(in_handler[0], to, 100), 100); check(to, 100, 5)),
        0);
    errno = saved;
}
/* A handler that makes calls, or forks, as often as can be, in the midst of calls. */
static void calls_within_calls(void (*handler)(int), int times, long us) {
    char *from = area + 2 * PAGE, *to = area + 5 * PAGE;
    fill(area, PAGE, 5);
    handle_signal(SIGALRM, handler, SA_RESTART);
    handled = 0, last_ring = times, ring(us);
    for (unsigned n = 0; handled < times; n++) {
        fill(from, 300, n);
        EQ(write(ends[0], from, 300), 300), EQ(read(ends[1], to, 300), 300);
        check(to, 300, n);
    }
    last_ring = 0, ring(0);
}
/* More handlers that leave calls for good than calls can be in progress. */
static void calls_left_for_good(void) {
    volatile unsigned n = 0;
    handle_signal(SIGALRM, leaves, 0);
    char *from = area + 2 * PAGE, *to = area + 5 * PAGE;
    handled = 0;
    sigsetjmp(back, 1);
    ring(0);
    /* What is on its way is from the call that was left. */
    while (recv(ends[1], to, PAGE, MSG_DONTWAIT) > 0) {
    }
    /* One that came as the jump let it come is counted, too. */
    if (handled >= 300) return;
    ring(200 + n % 50);
    if (n++ % 2) {
        /* In a call that waits. */
        (void)!read(in_handler[0], to, 10);
        die("%s:%d: something came of nothing", __FILE__, __LINE__);
    }
    for (unsigned i = n;; i++) {
        fill(from, 200, i);
        EQ(write(ends[0], from, 200), 200), EQ(read(ends[1], to, 200), 200);
        check(to, 200, i);
    }
}
static void *rings(void *arg) {
    sleep_ms(20);
    OK(pthread_kill(*(pthread_t *)arg, SIGUSR1));
    sleep_ms(20);
    EQ(write(ends[0], "x", 1), 1);
    return NULL;
}
/* A call that waits ends, or goes on, as the handler wants it. */
static void interrupted(void) {
    pthread_t me = pthread_self(), t;
    char *to = area + 5 * PAGE;
    for (int restarts = 0; restarts < 2; restarts++) {
        handle_signal(SIGUSR1, makes_calls, restarts ? SA_RESTART : 0);
        handled = 0, *to = 0;
        OK(pthread_create(&t, NULL, rings, &me));
        if (!restarts) expect_errno(read(ends[1], to, 10), EINTR);
        EQ(read(ends[1], to, 10), 1), EQ(*to, 'x'), EQ(handled, 1);
        OK(pthread_join(t, NULL));
    }
    handle_signal(SIGUSR1, forks, SA_RESTART);
    fill(area, PAGE, 5);
    for (int i = 0; i < 20; i++) {
        handled = 0, *to = 0;
        OK(pthread_create(&t, NULL, rings, &me));
        EQ(read(ends[1], to, 10), 1), EQ(*to, 'x'), EQ(handled, 1);
        OK(pthread_join(t, NULL));
    }
}

static void evicts(int signal) {
    (void)signal;
    handled++;
    evict_some(area, PAGES * PAGE);
}
enum { LONG = 9000 };
static void *rings_and_goes_on(void *arg) {
    static char other[1 << 20];
    sleep_ms(20);
    OK(pthread_kill(*(pthread_t *)arg, SIGUSR1));
    sleep_ms(20);
    fill(other, LONG, 3);
    write_all(in_handler[1], other, LONG);
    write_all(ends[0], other, LONG);
    return NULL;
}
static void *rings_and_drains(void *arg) {
    static char other[1 << 20];
    sleep_ms(20);
    OK(pthread_kill(*(pthread_t *)arg, SIGUSR1));
    sleep_ms(20);
    for (size_t n = 0; n < 1 << 20;) {
        ssize_t got = read(ends[1], other + n, (1 << 20) - n);
        CHECK(got > 0);
        n += got;
        if (n > LONG && !memcmp(other + n - 4, "last", 4)) {
            check(other + n - 4 - LONG, LONG, 4);
            return NULL;
        }
    }
    die("%s:%d: no end", __FILE__, __LINE__);
}
/* Calls whose buffers are named by structures on the stack wait, and are interrupted by a handler after which they go on, and after
 * which their buffers are out. */
static void started_again(void) {
    pthread_t me = pthread_self(), t;
    char *to = area + 5 * PAGE - 200;
    handle_signal(SIGUSR1, evicts, SA_RESTART);
    for (int way = 0; way < 4; way++) {
        struct iovec v[2] = {{to, LONG / 3}, {to + LONG / 3, LONG - LONG / 3}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        handled = 0;
        memset(to, 1, LONG);
        if (way < 2) {
            OK(pthread_create(&t, NULL, rings_and_goes_on, &me));
            EQ(way ? recvmsg(ends[1], &m, MSG_WAITALL) : readv(in_handler[0], v, 2), LONG);
            check(to, LONG, 3), EQ(handled, 1);
            EQ(read_all(way ? in_handler[0] : ends[1], to, LONG), LONG);
            OK(pthread_join(t, NULL));
            continue;
        }
        /* What does not fit waits. */
        while (send(ends[0], to, LONG, MSG_DONTWAIT) > 0) {
        }
        fill(to, LONG, 4);
        OK(pthread_create(&t, NULL, rings_and_drains, &me));
        EQ(way == 2 ? writev(ends[0], v, 2) : sendmsg(ends[0], &m, 0), LONG);
        EQ(handled, 1);
        EQ(write(ends[0], "last", 4), 4);
        OK(pthread_join(t, NULL));
    }
}
/* Structures that are nowhere. */
static void wrong_addresses(void) {
    for (long at = -1; at > -9000; at -= 1000) {
        void *p = (void *)at;
        struct msghdr m = {.msg_iov = p, .msg_iovlen = 1};
        expect_errno(readv(ends[1], p, 1), EFAULT), expect_errno(writev(ends[0], p, 1), EFAULT);
        expect_errno(recvmsg(ends[1], p, 0), EFAULT), expect_errno(sendmsg(ends[0], p, 0), EFAULT);
        expect_errno(sendmsg(ends[0], &m, 0), EFAULT);
    }
}

static sem_t ready;
static int pairs[THREADS][2];
static volatile int cleaned;
static void cleanup(void *arg) {
    EQ(*(int *)arg, 7);
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}
static void *waits(void *arg) {
    int kept = 7, n = (int)(intptr_t)arg;
    char *to = area + n % PAGES * PAGE + n * 10;
    pthread_cleanup_push(cleanup, &kept);
    *to = 0;
    OK(sem_post(&ready));
    for (;;) {
        EQ(read(pairs[n][1], to, 1), 1);
        EQ(*to, (char)n);
        *to = (char)(n + 1);
        EQ(write(pairs[n][1], to, 1), 1);
    }
    pthread_cleanup_pop(0);
}
/* Many threads, each in a call that waits, answer, and are cancelled there. */
static void many_threads(void) {
    pthread_t t[THREADS];
    OK(sem_init(&ready, 0, 0));
    for (int rounds = 0; rounds < 5; rounds++) {
        for (int n = 0; n < THREADS; n++) {
            OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[n]));
            OK(pthread_create(&t[n], NULL, waits, (void *)(intptr_t)n));
        }
        for (int n = 0; n < THREADS; n++) OK(sem_wait(&ready));
        for (int turns = 0; turns < 20; turns++)
            for (int n = 0; n < THREADS; n++) {
                char c = (char)n;
                EQ(write(pairs[n][0], &c, 1), 1), EQ(read(pairs[n][0], &c, 1), 1), EQ(c, (char)(n + 1));
            }
        cleaned = 0;
        for (int n = 0; n < THREADS; n++) OK(pthread_cancel(t[n]));
        for (int n = 0; n < THREADS; n++) {
            void *result;
            OK(pthread_join(t[n], &result));
            CHECK(result == PTHREAD_CANCELED);
            OK(close(pairs[n][0])), OK(close(pairs[n][1]));
        }
        EQ(cleaned, THREADS);
    }
}
/* A request that is pending already is found, and one that is not wanted now is not. */
static void *cancelled_before(void *arg) {
    char *to = area + 7 * PAGE;
    *to = 1;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    OK(pthread_cancel(pthread_self()));
    EQ(write(ends[0], to, 1), 1), EQ(read(ends[1], to, 1), 1);
    (*(int *)arg)++;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    (void)!write(ends[0], to, 1);
    (*(int *)arg)++;
    return NULL;
}

int main(void) {
    tmpdir();
    area = fresh(PAGES);
    memset(area, 0, PAGES * PAGE);
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)), OK(pipe((int *)in_handler));
    every_function();
    paths();
    cancelled_while_it_opens();
    memset(area, 0, PAGES * PAGE);
    calls_within_calls(makes_calls, 500, 150), calls_within_calls(forks, 50, 3000);
    interrupted();
    started_again();
    wrong_addresses();
    calls_left_for_good();
    many_threads();
    pthread_t t;
    void *result;
    int calls = 0;
    OK(pthread_create(&t, NULL, cancelled_before, &calls)), OK(pthread_join(t, &result));
    CHECK(result == PTHREAD_CANCELED);
    EQ(calls, 1);
    puts("ok");
    return 0;
}
