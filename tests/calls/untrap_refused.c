/* Fresh memory that the kernel has in several mappings is touched while no more mappings can be made (vm.max_map_count), so that none can be
 * divided: nothing hangs, and what is given back is zeros when it is mapped again. */
#include "common.h"

enum { MOST = 70000, BEFORE = 220, PAGES = 320 };
static char *many[MOST];
static size_t used;
static int fd;

static void use_up(void) {
    while (used < MOST && (many[used] = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0)) != MAP_FAILED) used++;
}
static void give_back(void) {
    while (used > 0) OK(munmap(many[--used], PAGE));
}
static char *fixed(char *at, size_t pages) {
    char *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(p == at);
    return p;
}
/* Around a border of 2 MiB: what was touched by itself is a mapping of the kernel's by itself from then on. */
static char *in_several(void) {
    char *range = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(range != MAP_FAILED);
    char *start = (char *)((size_t)(range + 8 * MIB) & ~(2 * MIB - 1)) - BEFORE * PAGE;
    OK(munmap(range, 16 * MIB));
    *fixed(start, 100) = 1;
    char *second = fixed(start + 110 * PAGE, 210);
    second[60 * PAGE] = second[160 * PAGE] = 1;
    OK(munmap(start, 100 * PAGE)), OK(munmap(second, 210 * PAGE));
    return fixed(start, PAGES);
}
int main(void) {
    /* First: what is given back before joins what the kernel has there. */
    char *p = in_several(), *kept = fresh(64);
    fill(kept, 64 * PAGE, 5), evict(kept, 64 * PAGE), check(kept, 64 * PAGE, 5);
    CHECK((fd = memfd_create("file", 0)) >= 0), OK(ftruncate(fd, PAGE));
    use_up();
    p[20 * PAGE] = 7;
    fill(p, PAGES * PAGE, 3), check(p, PAGES * PAGE, 3);
    give_back();
    OK(munmap(p, PAGES * PAGE));
    check_zero(fixed(p, PAGES), PAGES * PAGE);
    puts("ok");
    return 0;
}
