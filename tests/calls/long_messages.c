/* Messages on streams that are longer than what is made resident at once: what is said of all of a message comes with each part of it; and what
 * connects a socket sends all that it is given. */
#include "common.h"
#include <netinet/in.h>

enum { BYTES = 8 << 20, ROOM = 256 << 10 };

static struct ucred sent;
static int ends[2], rights;

/* Reads until the end, and looks at whose bytes they are. */
static void *receives(void *arg) {
    char *memory = fresh(ROOM / PAGE);
    size_t done = 0, files = 0;
    for (;;) {
        union {
            char room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(4 * sizeof(int))];
            struct cmsghdr align;
        } control;
        struct iovec part = {memory, ROOM};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(ends[0], &m, 0);
        CHECK(n >= 0);
        if (n == 0) break;
        check_from(memory, n, 1, done), done += n;
        int is_told = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            if (c->cmsg_type == SCM_RIGHTS) files += (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), close(*(int *)CMSG_DATA(c));
            if (c->cmsg_type != SCM_CREDENTIALS) continue;
            struct ucred *got = (struct ucred *)CMSG_DATA(c);
            EQ(got->pid, sent.pid), EQ(got->uid, sent.uid), EQ(got->gid, sent.gid), is_told = 1;
        }
        EQ(is_told, 1);
    }
    EQ(done, BYTES), EQ(files, rights);
    return arg;
}

static void credentials(void) {
    pthread_t thread;
    int on = 1;
    char *memory = fresh(BYTES / PAGE);
    union {
        char room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    OK(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    fill(memory, BYTES, 1), evict(memory, BYTES);
    /* Root may say that it is somebody else, who can be told from whom the kernel names by itself. */
    sent = (struct ucred){getpid(), geteuid() ? getuid() : 1, geteuid() ? getgid() : 2};
    struct iovec part = {memory, BYTES};
    size_t length = CMSG_SPACE(sizeof sent) + (rights ? CMSG_SPACE(sizeof(int)) : 0);
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = length};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (rights) {
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &on, sizeof on), c = CMSG_NXTHDR(&m, c);
    }
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_CREDENTIALS, c->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(c), &sent, sizeof sent);
    OK(pthread_create(&thread, NULL, receives, NULL));
    EQ(sendmsg(ends[1], &m, 0), BYTES);
    OK(close(ends[1])), OK(pthread_join(thread, NULL)), OK(close(ends[0]));
    OK(munmap(memory, BYTES));
}

static void *accepts(void *listener) {
    int fd = accept((int)(long)listener, NULL, NULL);
    char *memory = fresh(BYTES / PAGE);
    CHECK(fd >= 0);
    EQ(read_all(fd, memory, BYTES), BYTES);
    check(memory, BYTES, 2);
    OK(close(fd)), OK(munmap(memory, BYTES));
    return NULL;
}

static void connects(int by_message) {
    pthread_t thread;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && fd >= 0);
    OK(bind(listener, (void *)&at, sizeof at)), OK(listen(listener, 1)), OK(getsockname(listener, (void *)&at, &len));
    OK(pthread_create(&thread, NULL, accepts, (void *)(long)listener));
    char *memory = fresh(BYTES / PAGE);
    fill(memory, BYTES, 2), evict(memory, BYTES);
    struct iovec part = {memory, BYTES};
    struct msghdr m = {.msg_name = &at, .msg_namelen = sizeof at, .msg_iov = &part, .msg_iovlen = 1};
    ssize_t n = by_message ? sendmsg(fd, &m, MSG_FASTOPEN) : sendto(fd, memory, BYTES, MSG_FASTOPEN, (void *)&at, sizeof at);
    if (n < 0 && errno == EOPNOTSUPP) {
        /* Not allowed on this machine. */
        OK(connect(fd, (void *)&at, sizeof at));
        write_all(fd, memory, BYTES), n = BYTES;
    }
    EQ(n, BYTES);
    OK(close(fd)), OK(pthread_join(thread, NULL)), OK(close(listener)), OK(munmap(memory, BYTES));
}

int main(void) {
    for (rights = 0; rights < 2; rights++) credentials();
    for (int by_message = 0; by_message < 2; by_message++) connects(by_message);
    puts("ok");
    return 0;
}
