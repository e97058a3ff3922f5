/* Messages on streams that are longer than what is made resident at once. Every byte of one comes with the credentials that were sent with it,
 * descriptors come once; and what connects a socket (MSG_FASTOPEN) sends all that it is given. */
#include "common.h"
#include <netinet/in.h>

/* Messages with control data are made in parts only where they are longer than half of the limit. */
enum { BYTES = 20 << 20, ROOM = 100 << 10, BUFFERS = 5 };
static int ends[2];
/* Whose bytes are to come, from which one on; and how many descriptors. */
static struct ucred whose[2];
static int files_sent;

/* Reads until the end, with each call into two buffers. */
static void *receives(void *unused) {
    char *memory = fresh(ROOM / PAGE);
    size_t done = 0, files = 0;
    for (;;) {
        union {
            char room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(4 * sizeof(int))];
            struct cmsghdr align;
        } control;
        struct iovec parts[2] = {{memory, ROOM / 4}, {memory + ROOM / 4, ROOM - ROOM / 4}};
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(ends[0], &m, 0);
        CHECK(n >= 0);
        if (n == 0) break;
        EQ(m.msg_flags & (MSG_CTRUNC | MSG_TRUNC), 0);
        /* No call gives bytes of two senders. */
        size_t second = done >= BYTES, before = second ? 0 : BYTES - done, told = 0;
        size_t first = (size_t)n < before ? (size_t)n : before;
        CHECK(second || first == (size_t)n || whose[0].pid == whose[1].pid);
        check_from(memory, first, 1, done), check_from(memory + first, n - first, 1, second ? done - BYTES : 0);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            EQ(c->cmsg_level, SOL_SOCKET);
            if (c->cmsg_type == SCM_RIGHTS) {
                EQ(c->cmsg_len, CMSG_LEN(sizeof(int))), CHECK(done <= files * BYTES && done + n > files * BYTES);
                files++, OK(close(*(int *)CMSG_DATA(c)));
                continue;
            }
            struct ucred *got = (struct ucred *)CMSG_DATA(c);
            EQ(c->cmsg_type, SCM_CREDENTIALS), EQ(c->cmsg_len, CMSG_LEN(sizeof *got));
            EQ(got->pid, whose[second].pid), EQ(got->uid, whose[second].uid), EQ(got->gid, whose[second].gid), told++;
        }
        EQ(told, 1), done += n;
    }
    EQ(done, 2 * BYTES), EQ(files, files_sent), OK(munmap(memory, ROOM));
    return unused;
}

/* Sends a message with the given credentials, or with those that the kernel adds (`NULL`). */
static void sends(char *memory, const struct ucred *as, int with_file) {
    union {
        char room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec parts[BUFFERS];
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = BUFFERS};
    for (size_t i = 0, at = 0; i < BUFFERS; at += parts[i++].iov_len)
        parts[i] = (struct iovec){memory + at, i + 1 < BUFFERS ? 1000 + i * 600000 : BYTES - at};
    m.msg_controllen = (as ? CMSG_SPACE(sizeof *as) : 0) + (with_file ? CMSG_SPACE(sizeof(int)) : 0);
    m.msg_control = m.msg_controllen ? &control : NULL;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (as) {
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_CREDENTIALS, c->cmsg_len = CMSG_LEN(sizeof *as);
        memcpy(CMSG_DATA(c), as, sizeof *as), c = CMSG_NXTHDR(&m, c);
    }
    if (with_file) {
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &ends[1], sizeof(int));
    }
    evict(memory, BYTES), EQ(sendmsg(ends[1], &m, 0), BYTES);
}

static void credentials(char *memory) {
    struct ucred mine = {getpid(), getuid(), getgid()};
    /* Root may say that it is somebody else, who can be told from whom the kernel names by itself. */
    struct ucred other = geteuid() ? mine : (struct ucred){getppid(), 1, 2};
    const int on = 1;
    for (int way = 0; way < 4; way++) {
        pthread_t thread;
        OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        OK(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        whose[0] = way == 3 ? mine : other, whose[1] = mine, files_sent = way == 2 ? 2 : 0;
        OK(pthread_create(&thread, NULL, receives, NULL));
        sends(memory, way == 3 ? NULL : &other, way == 2), sends(memory, way == 1 ? NULL : &mine, way == 2);
        OK(close(ends[1])), OK(pthread_join(thread, NULL)), OK(close(ends[0]));
    }
}

static void *accepts(void *listener) {
    int fd = accept((int)(long)listener, NULL, NULL);
    char *memory = fresh(BYTES / PAGE), more;
    CHECK(fd >= 0);
    EQ(read_all(fd, memory, BYTES), BYTES), check(memory, BYTES, 1);
    EQ(read(fd, &more, 1), 0), OK(close(fd)), OK(munmap(memory, BYTES));
    return NULL;
}
static void connects(char *memory, int by_message) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && fd >= 0);
    OK(bind(listener, (void *)&at, sizeof at)), OK(listen(listener, 1)), OK(getsockname(listener, (void *)&at, &len));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, accepts, (void *)(long)listener));
    struct iovec parts[2] = {{memory, BYTES / 3}, {memory + BYTES / 3, BYTES - BYTES / 3}};
    struct msghdr m = {.msg_name = &at, .msg_namelen = sizeof at, .msg_iov = parts, .msg_iovlen = 2};
    evict(memory, BYTES);
    ssize_t n = by_message ? sendmsg(fd, &m, MSG_FASTOPEN) : sendto(fd, memory, BYTES, MSG_FASTOPEN, (void *)&at, sizeof at);
    /* Where the machine does not allow it, nothing was sent. */
    if (n < 0 && errno == EOPNOTSUPP) OK(connect(fd, (void *)&at, sizeof at)), write_all(fd, memory, BYTES), n = BYTES;
    EQ(n, BYTES);
    OK(close(fd)), OK(pthread_join(thread, NULL)), OK(close(listener));
}

int main(void) {
    alarm(60), pressure(40);
    char *memory = fresh(BYTES / PAGE);
    fill(memory, BYTES, 1);
    credentials(memory);
    for (int by_message = 0; by_message < 2; by_message++) connects(memory, by_message);
    check(memory, BYTES, 1);
    puts("ok");
    return 0;
}
