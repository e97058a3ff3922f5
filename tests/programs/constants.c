/* Constants that hold addresses, which the dynamic linker fills in: 4 MiB of them. They are what they are, also to the kernel, to children, and
 * beside what is made writable and changed; with 32 MiB of memory in use besides. Says in the file that it is told of how many KiB of them
 * are anonymous memory, at first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1 << 19, PAGE = 4096, HEAP = 32 << 20 };
static char text[] = "constants\n";
asm(".pushsection .data.rel.ro, \"aw\"\n.balign 4096\n.globl table\ntable:\n.set at, 0\n.rept 524288\n.quad target + at\n.set at, at + 1\n.endr\n.popsection\n"
    ".pushsection .bss\n.globl target\n.hidden target, table\ntarget:\n.zero 524288\n.popsection");
#ifdef ZEROS
char zeros[4 << 20];
#endif
extern char *table[], target[] __attribute__((visibility("hidden")));
static const struct iovec pieces[] = {{text, 4}, {text + 4, 6}};

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void check(size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (table[i] != target + i) die("a constant is another");
}

static long anonymous_kib(void) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long start, end, kib;
    int is_it = 0;
    long all = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) is_it = start < (unsigned long)(table + COUNT) && end > (unsigned long)table;
        else if (is_it && sscanf(line, "Anonymous: %lu", &kib) == 1) all += kib;
    }
    if (file) fclose(file);
    return all;
}

static void in_child(void (*does)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) does(), _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child || status) die("a child failed");
}

static void all(void) { check(0, COUNT); }

/* The page in the middle is changed, and its neighbours are not. */
static void change(void) {
    size_t page = COUNT / 2 & ~(size_t)(PAGE / 8 - 1);
    if (mprotect(table + page, PAGE, PROT_READ | PROT_WRITE)) die("mprotect");
    table[page + 3] = text;
    if (mprotect(table + page, PAGE, PROT_READ)) die("mprotect");
    check(0, page + 3), check(page + 4, COUNT);
    if (table[page + 3] != text) die("a change is lost");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        FILE *file = fopen(argv[1], "w");
        if (!file || fprintf(file, "%ld\n", anonymous_kib()) < 0 || fclose(file)) die(argv[1]);
    }
    all();
    char *heap = malloc(HEAP);
    for (size_t i = 0; i < HEAP; i += 64) heap[i] = (char)(i / 64 % 251);
    all();
    if (writev(1, pieces, 2) != 10) die("writev");
    in_child(all), in_child(change), all();
    change(), in_child(change);
    for (size_t i = 0; i < HEAP; i += 64)
        if (heap[i] != (char)(i / 64 % 251)) die("memory is another");
    if (argc > 2) execl("/proc/self/exe", argv[0], argv[1], NULL);
    return 0;
}
