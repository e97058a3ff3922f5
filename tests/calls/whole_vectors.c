/* A vector of a regular file is one operation, in a process in which many threads wait in calls: records are whole beside those of other threads
 * and of another process, whether the file appends or one position is shared. */
#include "waiters.h"

enum { WRITERS = 2, RECORDS = 120, BUFFERS = 16, ALL = 2 * WRITERS * RECORDS, HEAD = 8, ROOM = 2 * BUFFERS * PAGE };
static int shared, writer_base;

/* Every record has another cut, which can be told from its number: 16 buffers of 1 to 4 KiB. */
static size_t buffer_bytes(unsigned record, int i) { return 1024 + (record * 7 + i * 5) % 13 * 256; }
static size_t record_bytes(unsigned record) {
    size_t bytes = 0;
    for (int i = 0; i < BUFFERS; i++) bytes += buffer_bytes(record, i);
    return bytes;
}
/* Each buffer lies apart, over the border of two pages. */
static size_t spread(struct iovec *parts, char *memory, unsigned record) {
    for (int i = 0; i < BUFFERS; i++) {
        size_t bytes = buffer_bytes(record, i);
        parts[i] = (struct iovec){memory + (i * 2 + 1) * PAGE - bytes / 2, bytes};
    }
    return record_bytes(record);
}

/* Appends where `shared` is -1, else writes at the position that all have in common. */
static void *writes(void *number) {
    int fd = shared < 0 ? open("records", O_WRONLY | O_APPEND) : shared;
    char *memory = fresh(ROOM / PAGE), record[BUFFERS * PAGE];
    struct iovec parts[BUFFERS];
    CHECK(fd >= 0);
    for (unsigned n = 0; n < RECORDS; n++) {
        unsigned id = (writer_base + (long)number) * RECORDS + n;
        size_t bytes = spread(parts, memory, id), at = 0;
        memcpy(record, (uint64_t[]){id}, HEAD), fill(record + HEAD, bytes - HEAD, id);
        for (int i = 0; i < BUFFERS; at += parts[i++].iov_len) memcpy(parts[i].iov_base, record + at, parts[i].iov_len);
        if (n % 4 == 0) evict_some(memory, ROOM);
        EQ(n % 2 ? writev(fd, parts, BUFFERS) : pwritev2(fd, parts, BUFFERS, -1, 0), bytes);
    }
    if (shared < 0) OK(close(fd));
    OK(munmap(memory, ROOM));
    return NULL;
}
/* As many threads wait in each of both processes. */
static void write_all_records(void) {
    pthread_t writers[WRITERS];
    begin_waiting();
    for (long i = 0; i < WRITERS; i++) OK(pthread_create(&writers[i], NULL, writes, (void *)i));
    for (int i = 0; i < WRITERS; i++) OK(pthread_join(writers[i], NULL));
    end_waiting();
}
/* All records are there, each once and whole. */
static void check_records(void) {
    static char seen[ALL], record[BUFFERS * PAGE];
    int fd = open("records", O_RDONLY);
    memset(seen, 0, sizeof seen);
    for (int n = 0; n < ALL; n++) {
        uint64_t id;
        EQ(read(fd, &id, HEAD), HEAD), CHECK(id < ALL && !seen[id]), seen[id] = 1;
        size_t bytes = record_bytes(id) - HEAD;
        EQ(read(fd, record, bytes), bytes), check(record, bytes, id);
    }
    EQ(read(fd, record, 1), 0), OK(close(fd));
}

enum { STEP = 24 << 10, STEPS = 300 };
static int next_step[STEPS];
/* Reads records of one length from the position that all have in common. */
static void *reads(void *unused) {
    char *memory = fresh(ROOM / PAGE);
    struct iovec parts[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) parts[i] = (struct iovec){memory + (i * 2 + 1) * PAGE - 700, STEP / BUFFERS};
    for (ssize_t got; (got = readv(shared, parts, BUFFERS)) != 0; evict_some(memory, ROOM)) {
        EQ(got, STEP);
        unsigned step = *(uint32_t *)parts[0].iov_base;
        CHECK(step < STEPS), EQ(__atomic_fetch_add(&next_step[step], 1, __ATOMIC_RELAXED), 0);
        for (size_t at = 4; at < STEP; at++) {
            size_t i = at / (STEP / BUFFERS), from = at % (STEP / BUFFERS);
            EQ(((unsigned char *)parts[i].iov_base)[from], byte_at(step, at));
        }
    }
    OK(munmap(memory, ROOM));
    return unused;
}
static void read_records(void) {
    pthread_t readers[WRITERS + 1];
    static char step[STEP];
    CHECK((shared = open("steps", O_CREAT | O_RDWR, 0600)) >= 0);
    for (uint32_t n = 0; n < STEPS; n++) fill(step, STEP, n), memcpy(step, &n, 4), EQ(write(shared, step, STEP), STEP);
    EQ(lseek(shared, 0, SEEK_SET), 0);
    begin_waiting();
    for (int i = 0; i <= WRITERS; i++) OK(pthread_create(&readers[i], NULL, reads, NULL));
    for (int i = 0; i <= WRITERS; i++) OK(pthread_join(readers[i], NULL));
    for (int n = 0; n < STEPS; n++) EQ(next_step[n], 1);
    end_waiting(), OK(close(shared));
}

int main(void) {
    alarm(60), tmpdir(), pressure(40);
    for (int has_one_position = 0; has_one_position < 2; has_one_position++) {
        make_file("records", 0, 0);
        shared = has_one_position ? open("records", O_WRONLY) : -1;
        CHECK(shared >= 0 || !has_one_position);
        pid_t child = CHILD(alarm(60), writer_base = WRITERS, write_all_records());
        write_all_records();
        expect_exit(child, 0);
        if (has_one_position) OK(close(shared));
        check_records();
    }
    read_records();
    puts("ok");
    return 0;
}
