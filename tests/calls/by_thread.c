/* process_vm_readv and process_vm_writev on memory of another process that is evicted, by the number of one of its threads. */
#include "common.h"

enum { PAGES = 2048, PART = 64 };
static int says[2], goes[2];

static void *tells(void *memory) {
    struct {
        pid_t tid;
        char *memory;
    } told = {gettid(), memory};
    char byte;
    EQ(write(says[1], &told, sizeof told), sizeof told);
    EQ(read(goes[0], &byte, 1), 1);
    return NULL;
}

static void other(void) {
    pthread_t thread;
    char *memory = fresh(PAGES);
    close(says[0]), close(goes[1]);
    fill(memory, PAGES * PAGE, 1), evict(memory, PAGES * PAGE);
    OK(pthread_create(&thread, NULL, tells, memory)), OK(pthread_join(thread, NULL));
    check(memory, PART * PAGE, 2);
    check_from(memory + PART * PAGE, (PAGES - PART) * PAGE, 1, PART * PAGE);
}

int main(void) {
    struct {
        pid_t tid;
        char *memory;
    } told;
    OK(pipe(says)), OK(pipe(goes));
    pid_t child = CHILD(other());
    close(says[1]), close(goes[0]);
    EQ(read(says[0], &told, sizeof told), sizeof told);
    CHECK(told.tid != child);
    char *got = fresh(PART);
    for (size_t at = 0; at < PAGES; at += PART) {
        struct iovec here = {got, PART * PAGE}, there = {told.memory + at * PAGE, PART * PAGE};
        EQ(process_vm_readv(told.tid, &here, 1, &there, 1, 0), PART * PAGE);
        check_from(got, PART * PAGE, 1, at * PAGE);
    }
    fill(got, PART * PAGE, 2), evict(got, PART * PAGE);
    struct iovec here = {got, PART * PAGE}, there = {told.memory, PART * PAGE};
    EQ(process_vm_writev(told.tid, &here, 1, &there, 1, 0), PART * PAGE);
    EQ(write(goes[1], "x", 1), 1);
    expect_exit(child, 0);
    puts("ok");
    return 0;
}
