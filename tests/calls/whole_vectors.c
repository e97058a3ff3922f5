/* Vectors of files and of pipes of packets, in a process in which many threads wait: what one call writes is one record, what it reads is one
 * packet, and flags are kept. */
#include "common.h"
#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

enum { WAITERS = 24, WRITERS = 3, RECORDS = 200, BUFFERS = 12, EACH = 1400, RECORD = BUFFERS * EACH, LONG = 6 << 20 };
static int pipes[WAITERS][2];

static void *waits(void *number) {
    int *ends = pipes[(long)number];
    char *room = fresh(16);
    EQ(read(ends[0], room, 16 * PAGE), 1), EQ(*room, 'x');
    return NULL;
}

/* Buffers that lie apart, the last of each page, in memory that was evicted; each byte says whose they are. */
static void *appends(void *number) {
    int fd = open("records", O_WRONLY | O_APPEND);
    char *memory = fresh(BUFFERS * 2);
    struct iovec parts[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) parts[i] = (struct iovec){memory + (i * 2 + 1) * PAGE - EACH / 2, EACH};
    CHECK(fd >= 0);
    for (int n = 0; n < RECORDS; n++) {
        memset(memory, (int)((long)number * 64 + n % 64), BUFFERS * 2 * PAGE);
        if (n % 16 == 0) evict_some(memory, BUFFERS * 2 * PAGE);
        EQ(n % 2 ? writev(fd, parts, BUFFERS) : pwritev2(fd, parts, BUFFERS, -1, 0), RECORD);
    }
    OK(close(fd));
    return NULL;
}

static void records(void) {
    pthread_t writers[WRITERS];
    make_file("records", 0, 0);
    for (long i = 0; i < WRITERS; i++) OK(pthread_create(&writers[i], NULL, appends, (void *)(i + 1)));
    for (int i = 0; i < WRITERS; i++) OK(pthread_join(writers[i], NULL));
    int fd = open("records", O_RDONLY), next[WRITERS + 1] = {0};
    char *one = fresh(RECORD / PAGE + 1);
    struct iovec parts[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) parts[i] = (struct iovec){one + i * EACH, EACH};
    for (int n = 0; n < WRITERS * RECORDS; n++) {
        EQ(readv(fd, parts, BUFFERS), RECORD);
        for (int i = 1; i < RECORD; i++) EQ(one[i], one[0]);
        int writer = (unsigned char)one[0] / 64;
        EQ((unsigned char)one[0] % 64, next[writer]++ % 64);
    }
    EQ(readv(fd, parts, BUFFERS), 0);
    OK(close(fd));
}

/* With flags, and more than is made resident at once, in buffers that are as uneven as can be. */
static void flags(void) {
    enum { PARTS = 700 };
    struct iovec parts[PARTS];
    char *memory = fresh(LONG / PAGE), *read_back = fresh(LONG / PAGE);
    fill(memory, LONG, 5);
    for (size_t i = 0, at = 0; i < PARTS; i++) {
        size_t len = i + 1 == PARTS ? LONG - at : i % 7 * 2500;
        parts[i] = (struct iovec){memory + at, len}, at += len;
    }
    int fd = open("flags", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    for (int n = 0; n < 2; n++) evict(memory, LONG), EQ(pwritev2(fd, parts, PARTS, n ? 3 : 0, n ? RWF_APPEND : RWF_DSYNC), LONG);
    EQ(lseek(fd, 0, SEEK_END), 2L * LONG);
    for (size_t i = 0; i < PARTS; i++) parts[i].iov_base = read_back + ((char *)parts[i].iov_base - memory);
    for (int n = 0; n < 2; n++) {
        memset(read_back, 0, LONG);
        EQ(lseek(fd, LONG, SEEK_SET), LONG);
        EQ(n ? preadv2(fd, parts, PARTS, -1, 0) : preadv(fd, parts, PARTS, LONG), LONG);
        check(read_back, LONG, 5);
        EQ(lseek(fd, 0, SEEK_CUR), n ? 2L * LONG : LONG);
    }
    OK(close(fd));
    OK(munmap(memory, LONG)), OK(munmap(read_back, LONG));
}

static void packets(void) {
    enum { PACKET = 3000, PIECE_BYTES = 1000 };
    int ends[2];
    struct iovec parts[BUFFERS];
    char *memory = fresh(BUFFERS * 2), packet[PACKET];
    for (int i = 0; i < BUFFERS; i++) parts[i] = (struct iovec){memory + i * 2 * PAGE, PIECE_BYTES};
    OK(pipe2(ends, O_DIRECT | O_NONBLOCK));
    for (int n = 0; n < 3; n++) fill(packet, PACKET, n), EQ(write(ends[1], packet, PACKET), PACKET);
    for (int n = 0; n < 3; n++) {
        evict_some(memory, BUFFERS * 2 * PAGE);
        EQ(readv(ends[0], parts, BUFFERS), PACKET);
        for (int i = 0; i < PACKET / PIECE_BYTES; i++) check_from(parts[i].iov_base, PIECE_BYTES, n, i * PIECE_BYTES);
    }
    expect_errno(readv(ends[0], parts, BUFFERS), EAGAIN);
    OK(close(ends[0])), OK(close(ends[1])), OK(munmap(memory, BUFFERS * 2 * PAGE));
}

int main(void) {
    pthread_t waiters[WAITERS];
    char *memory = fresh(256);
    tmpdir();
    fill(memory, 256 * PAGE, 1), evict(memory, 256 * PAGE);
    for (long i = 0; i < WAITERS; i++) OK(pipe(pipes[i])), OK(pthread_create(&waiters[i], NULL, waits, (void *)i));
    sleep_ms(100);
    records();
    flags();
    packets();
    for (int i = 0; i < WAITERS; i++) EQ(write(pipes[i][1], "x", 1), 1), OK(pthread_join(waiters[i], NULL));
    check(memory, 256 * PAGE, 1);
    puts("ok");
    return 0;
}
