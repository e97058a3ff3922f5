/* Transfers of more than a small budget holds, in one call: file, pipe, stream socket, vectors. */
#include "common.h"

#define SIZE ((size_t)48 << 20)
static void *drain(void *arg) {
    int fd = *(int *)arg;
    char *p = fresh(SIZE / PAGE);
    EQ(read_all(fd, p, SIZE), SIZE), check(p, SIZE, 6), OK(munmap(p, SIZE));
    return NULL;
}
/* A call that waits takes all of it. */
static void send_all(int fd, const char *p, int how) {
    struct iovec v[2] = {{(char *)p, SIZE / 2}, {(char *)p + SIZE / 2, SIZE / 2}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    EQ(how == 0 ? write(fd, p, SIZE) : how == 1 ? send(fd, p, SIZE, 0) : how == 2 ? writev(fd, v, 2) : sendmsg(fd, &m, 0), SIZE);
}
int main(void) {
    tmpdir();
    char *p = fresh(SIZE / PAGE), *q = fresh(SIZE / PAGE);
    fill(p, SIZE, 6), evict(p, SIZE);
    int fd = open("big", O_RDWR | O_CREAT, 0600);
    /* A file takes and gives everything at once. */
    EQ(write(fd, p, SIZE), SIZE), evict(p, SIZE);
    EQ(lseek(fd, 0, SEEK_SET), 0), EQ(read(fd, q, SIZE), SIZE), check(q, SIZE, 6);
    madvise(q, SIZE, MADV_DONTNEED);
    struct iovec v[3] = {{q, SIZE / 4}, {q + SIZE / 4, SIZE / 2}, {q + SIZE / 4 * 3, SIZE / 4}};
    EQ(preadv(fd, v, 3, 0), SIZE), check(q, SIZE, 6);
    OK(ftruncate(fd, 0)), EQ(pwritev(fd, v, 3, 0), SIZE), evict(q, SIZE);
    EQ(pread(fd, q, SIZE, 0), SIZE), check(q, SIZE, 6);
    OK(munmap(q, SIZE)), close(fd), OK(unlink("big"));
    for (int how = 0; how < 4; how++) {
        int s[2];
        pthread_t t;
        if (how % 2 == 0)
            OK(pipe(s));
        else
            OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
        int from = s[0], to = s[1];
        OK(pthread_create(&t, NULL, drain, &from));
        send_all(to, p, how);
        OK(pthread_join(t, NULL));
        close(s[0]), close(s[1]);
    }
    check(p, SIZE, 6);
    puts("ok");
    return 0;
}
