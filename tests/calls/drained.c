/* Reads that do not wait give all that there is, up to what was asked for, however much that is and in however many buffers: who is told of
 * edges alone (EPOLLET) takes less than he asked for as the word that there is no more. */
#include "common.h"
#include <netinet/in.h>
#include <sys/epoll.h>

enum { BUFFERS = 1000, BUFFER = 2048, MOST = 16 << 20, WAIT_MS = 20000, EACH_NS = 200000 };
static char *area;
static volatile sig_atomic_t signals;
static void count(int signal) { (void)signal, signals++; }

/* Signals come again and again, which is nothing to a read that does not wait. */
static void begin_signals(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &action, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec times = {{0, EACH_NS}, {0, EACH_NS}};
    timer_t timer;
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer)), OK(timer_settime(timer, 0, &times, NULL));
}
static int wait_for(int edges, struct epoll_event *event) {
    int n;
    do n = epoll_wait(edges, event, 1, WAIT_MS);
    while (n < 0 && errno == EINTR);
    return n;
}

static void with_room(int fd, int what, int forced) {
    int bytes = 4 << 20;
    if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes)) OK(setsockopt(fd, SOL_SOCKET, what, &bytes, sizeof bytes));
}
static void make_pair(int kind, int pair[2]) {
    if (kind == 0) OK(pipe(pair)), fcntl(pair[1], F_SETPIPE_SZ, 1 << 20);
    if (kind == 1) OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)), with_room(pair[1], SO_SNDBUF, SO_SNDBUFFORCE);
    if (kind == 2) {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof name;
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(listener >= 0);
        with_room(listener, SO_RCVBUF, SO_RCVBUFFORCE);
        OK(bind(listener, (void *)&name, sizeof name)), OK(listen(listener, 1));
        OK(getsockname(listener, (void *)&name, &len));
        CHECK((pair[1] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
        with_room(pair[1], SO_SNDBUF, SO_SNDBUFFORCE);
        OK(connect(pair[1], (void *)&name, sizeof name));
        CHECK((pair[0] = accept(listener, NULL, NULL)) >= 0);
        close(listener);
    }
    for (int i = 0; i < 2; i++) OK(fcntl(pair[i], F_SETFL, O_NONBLOCK));
}
/* As much as fits, all of it different. */
static size_t fill_up(int fd) {
    static char block[PAGE];
    size_t all = 0;
    for (;;) {
        for (size_t i = 0; i < sizeof block; i++) block[i] = (all + i) * 2654435761u >> 13;
        ssize_t n = write(fd, block, sizeof block);
        if (n < 0) break;
        all += n;
    }
    EQ(errno, EAGAIN);
    return all;
}
static void is_right(const char *at, size_t from, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (at[i] != (char)((from + i) * 2654435761u >> 13)) die("byte %zu of what was read is wrong", from + i);
}
static ssize_t take(int fd, int way, size_t asked) {
    static struct iovec many[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) many[i] = (struct iovec){area + i * BUFFER, BUFFER};
    struct iovec two[2] = {{area, asked / 2}, {area + asked / 2, asked / 2}};
    struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
    switch (way) {
    case 0: return read(fd, area, asked);
    case 1: return readv(fd, two, 2);
    case 2: return readv(fd, many, BUFFERS);
    case 3: return recv(fd, area, asked, 0);
    default: return recvmsg(fd, &message, 0);
    }
}
static void drains(int kind, int way) {
    int pair[2];
    make_pair(kind, pair);
    size_t all = fill_up(pair[1]), got = 0, asked = way == 2 ? BUFFERS * BUFFER : MOST;
    CHECK(all > 64 << 10);
    int edges = epoll_create1(0);
    CHECK(edges >= 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    OK(epoll_ctl(edges, EPOLL_CTL_ADD, pair[0], &event));
    while (got < all) {
        EQ(wait_for(edges, &event), 1);
        ssize_t n;
        do {
            evict(area, MOST);
            n = take(pair[0], way, asked);
            if (n < 0) break;
            CHECK(n > 0);
            is_right(area, got, n);
            got += n;
        } while ((size_t)n == asked);
        if (n < 0) EQ(errno, EAGAIN);
    }
    EQ(got, all);
    /* An end that comes with data is told by the next read, not before. */
    EQ(write(pair[1], "end", 3), 3);
    close(pair[1]);
    EQ(wait_for(edges, &event), 1);
    EQ(take(pair[0], way, asked), 3), EQ(take(pair[0], way, asked), 0);
    OK(memcmp(area, "end", 3));
    close(pair[0]), close(edges);
}

int main(void) {
    alarm(60);
    area = fresh(MOST / PAGE);
    for (int kind = 0; kind < 3; kind++)
        for (int way = 0; way < (kind ? 5 : 3); way++) drains(kind, way);
    begin_signals();
    for (int kind = 0; kind < 3; kind++)
        for (int way = 0; way < (kind ? 4 : 3); way++) drains(kind, way);
    CHECK(signals > 0);
    puts("ok");
    return 0;
}
