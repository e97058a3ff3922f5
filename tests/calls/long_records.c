/* A write of a regular file is one operation, also one of more memory than calls have resident by default: records are whole beside those of
 * other threads and of another process. */
#include "common.h"

enum { WRITERS = 2, RECORDS = 16, ALL = 2 * WRITERS * RECORDS, HEAD = 8, BUFFERS = 24, BUFFER = 64 << 10, ROOM = BUFFERS * BUFFER };
static int writer_base;
static char record[ROOM];

/* Every record has another length, which can be told from its number: 1.1 to 1.5 MiB. */
static size_t record_bytes(unsigned id) { return ROOM - id % 29 * 14001; }

static void *writes(void *number) {
    int fd = open("records", O_WRONLY | O_APPEND);
    char *memory = fresh(ROOM / PAGE);
    CHECK(fd >= 0);
    for (unsigned n = 0; n < RECORDS; n++) {
        unsigned id = (writer_base + (long)number) * RECORDS + n;
        size_t bytes = record_bytes(id);
        memcpy(memory, (uint64_t[]){id}, HEAD), fill(memory + HEAD, bytes - HEAD, id);
        if (n % 4 < 2) evict_some(memory, ROOM);
        struct iovec parts[BUFFERS];
        for (int i = 0; i < BUFFERS; i++) {
            size_t at = (size_t)i * BUFFER, left = at < bytes ? bytes - at : 0;
            parts[i] = (struct iovec){memory + at, left < BUFFER ? left : BUFFER};
        }
        EQ(n % 2 ? writev(fd, parts, BUFFERS) : write(fd, memory, bytes), bytes);
    }
    OK(close(fd)), OK(munmap(memory, ROOM));
    return NULL;
}
static void write_all_records(void) {
    pthread_t writers[WRITERS];
    for (long i = 0; i < WRITERS; i++) OK(pthread_create(&writers[i], NULL, writes, (void *)i));
    for (int i = 0; i < WRITERS; i++) OK(pthread_join(writers[i], NULL));
}

int main(void) {
    static char seen[ALL];
    alarm(60), tmpdir(), pressure(40), make_file("records", 0, 0);
    pid_t child = CHILD(alarm(60), writer_base = WRITERS, write_all_records());
    write_all_records();
    expect_exit(child, 0);
    int fd = open("records", O_RDONLY);
    for (int n = 0; n < ALL; n++) {
        uint64_t id;
        EQ(read(fd, &id, HEAD), HEAD), CHECK(id < ALL && !seen[id]), seen[id] = 1;
        size_t bytes = record_bytes(id) - HEAD;
        EQ(n % 2 ? read(fd, record, bytes) : readv(fd, &(struct iovec){record, bytes}, 1), bytes), check(record, bytes, id);
    }
    EQ(read(fd, record, 1), 0);
    puts("ok");
    return 0;
}
