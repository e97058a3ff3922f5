/* What children are not to have (MADV_WIPEONFORK, MADV_DONTFORK) they do not get, however the memory was moved, grown or advised since; and
 * locks they do not inherit. */
#include "common.h"

enum { NOTHING = 200 };

/* The first byte that a child finds there; NOTHING where nothing is mapped. */
static int child_sees(char *at) {
    int status;
    pid_t pid = CHILD({
        int ends[2];
        char byte;
        OK(pipe(ends));
        if (write(ends[1], at, 1) != 1) _exit(NOTHING);
        EQ(read(ends[0], &byte, 1), 1);
        _exit(byte);
    });
    EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}
static char *filled(size_t pages) {
    char *at = fresh(pages);
    memset(at, 7, pages * PAGE);
    evict_some(at, pages * PAGE);
    return at;
}

int main(void) {
    enum { MAYMOVE = 1, FIXED = 2, DONTUNMAP = 4 };
    size_t all = 4 * PAGE;
    char *at = filled(4);
    OK(madvise(at, all, MADV_WIPEONFORK));
    OK(madvise(at, all, MADV_DONTFORK));
    EQ(child_sees(at), NOTHING);
    OK(madvise(at, all, MADV_DOFORK));
    EQ(child_sees(at), 0);
    OK(madvise(at, all, MADV_KEEPONFORK));
    EQ(child_sees(at), 7);
    OK(madvise(at, all, MADV_DONTFORK));
    OK(madvise(at, all, MADV_KEEPONFORK));
    EQ(child_sees(at), NOTHING);

    /* Grown, where it is or elsewhere. */
    at = filled(8);
    OK(munmap(at + all, all));
    OK(madvise(at, all, MADV_WIPEONFORK));
    at = mremap(at, all, 2 * all, MAYMOVE);
    CHECK(at != MAP_FAILED);
    memset(at, 7, 2 * all);
    EQ(child_sees(at), 0);
    EQ(child_sees(at + 6 * PAGE), 0);
    at = filled(5);
    OK(madvise(at, all, MADV_DONTFORK));
    at = mremap(at, all, 600 * PAGE, MAYMOVE);
    CHECK(at != MAP_FAILED);
    memset(at, 7, 600 * PAGE);
    EQ(child_sees(at), NOTHING);
    EQ(child_sees(at + 599 * PAGE), NOTHING);

    /* Moved to where the kernel manages memory. */
    at = filled(4);
    OK(madvise(at, all, MADV_WIPEONFORK));
    char *out = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(out != MAP_FAILED);
    EQ((intptr_t)mremap(at, all, all, MAYMOVE | FIXED, out), (intptr_t)out);
    EQ(out[5], 7);
    EQ(child_sees(out), 0);

    /* Moved, with the mapping left behind. */
    at = filled(4);
    OK(madvise(at, all, MADV_WIPEONFORK));
    char *other = mremap(at, all, all, MAYMOVE | DONTUNMAP, NULL);
    CHECK(other != MAP_FAILED);
    memset(at, 9, all);
    EQ(child_sees(other), 0);
    EQ(child_sees(at), 0);

    /* What is cut off may be of several mappings. */
    at = filled(8);
    OK(mprotect(at + all, all, PROT_READ));
    EQ((intptr_t)mremap(at, 8 * PAGE, 2 * PAGE, 0), (intptr_t)at);
    check_zero(mmap(at + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), PAGE);

    at = filled(4);
    OK(mlock(at, all));
    OK(mlockall(MCL_FUTURE));
    EQ(madvise(at, PAGE, MADV_DONTNEED), -1);
    pid_t pid = CHILD({
        OK(madvise(at, PAGE, MADV_DONTNEED));
        EQ(at[0], 0);
        char *its = filled(1);
        OK(madvise(its, PAGE, MADV_DONTNEED));
        EQ(its[0], 0);
    });
    expect_exit(pid, 0);
    EQ(at[0], 7);
    puts("ok");
    return 0;
}
