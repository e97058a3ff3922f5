/* process_vm_readv and process_vm_writev on a process with one thread whose pages go and come all the time, by that thread: whoever
 * reads finds what was written, and what is written stays. */
#include "common.h"
#include <linux/prctl.h>
#include <sys/prctl.h>

enum { PAGES = 11264, AT_ONCE = 16, LOOKS = 4000, MAILBOX_EVERY = 8 };
#define WORDS (PAGE / sizeof(long))

static unsigned next(unsigned *seed) { return (*seed = *seed * 1664525 + 1013904223) >> 8; }
static long word(size_t page, size_t i) { return (long)(page * 2654435761 + i * 40503 + 1); }

/* Goes over its pages until somebody says so; every so many of them another process writes to, and this one does not. */
static void busy(char *area, int says, int hears) {
    char c = 1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (size_t page = 0; page < PAGES; page++)
        for (size_t i = 0; i < WORDS; i++) ((long *)(area + page * PAGE))[i] = word(page, i);
    EQ(write(says, &c, 1), 1), OK(fcntl(hears, F_SETFL, O_NONBLOCK));
    for (unsigned seed = 7; read(hears, &c, 1) < 0;)
        for (int n = 0; n < 64; n++) {
            size_t page = next(&seed) % PAGES, i = next(&seed) % WORDS;
            volatile long *at = (long *)(area + page * PAGE) + i;
            /* Looked at once: it may be written to between two looks. */
            long has = *at;
            if (page % MAILBOX_EVERY) EQ(has, word(page, i)), *at = word(page, i);
            else if (has != word(page, i) && has != -word(page, i)) die("page %zu has %ld at %zu", page, has, i);
        }
    _exit(0);
}
int main(void) {
    static long here[AT_ONCE * WORDS];
    static char negative[PAGES];
    char *area = fresh(PAGES), c;
    int says[2], hears[2];
    OK(pipe(says)), OK(pipe(hears));
    pid_t child = CHILD(close(hears[1]), busy(area, says[1], hears[0]));
    EQ(read(says[0], &c, 1), 1);
    unsigned seed = 1;
    for (int look = 0; look < LOOKS; look++) {
        size_t count = 1 + next(&seed) % AT_ONCE, first = next(&seed) % (PAGES - count);
        if (look % 4 == 3) {
            first -= first % MAILBOX_EVERY;
            for (size_t i = 0; i < WORDS; i++) here[i] = negative[first] ? word(first, i) : -word(first, i);
            negative[first] = !negative[first];
        }
        size_t bytes = (look % 4 == 3 ? 1 : count) * PAGE;
        for (size_t done = 0; done < bytes;) {
            struct iovec local = {(char *)here + done, bytes - done}, remote = {area + first * PAGE + done, bytes - done};
            ssize_t got = look % 4 == 3 ? process_vm_writev(child, &local, 1, &remote, 1, 0) : process_vm_readv(child, &local, 1, &remote, 1, 0);
            if (got <= 0) die("look %d: %zd, errno %d, after %zu of %zu", look, got, errno, done, bytes);
            done += got;
        }
        for (size_t at = 0; look % 4 != 3 && at < count * WORDS; at++) {
            size_t page = first + at / WORDS;
            long want = negative[page] ? -word(page, at % WORDS) : word(page, at % WORDS);
            if (here[at] != want) die("look %d: page %zu has %ld at %zu, not %ld", look, page, here[at], at % WORDS, want);
        }
    }
    EQ(write(hears[1], &c, 1), 1);
    expect_exit(child, 0);
    puts("ok");
    return 0;
}
