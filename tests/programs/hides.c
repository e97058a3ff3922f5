/* hides WAY FRESH OTHER: touches FRESH MiB of fresh memory here and there (sparse), or reads all of it (read); then fills OTHER MiB that no
 * library manages, a MiB at a time, waits, and fills the first.
 * hides idle FRESH: touches a page of every 2 MiB, and waits to be ended. hides uses FRESH: fills it. */
#include "../calls/common.h"

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    size_t bytes = strtoul(argv[2], NULL, 10) * MIB, other = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    size_t step = strcmp(argv[1], "sparse") == 0 ? 64 * PAGE : strcmp(argv[1], "idle") == 0 ? 2 * MIB : PAGE;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q[other + 1];
    CHECK(p != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += step) {
        if (step > PAGE) p[at] = 1;
        else if (other > 0) EQ(*(volatile char *)(p + at), 0);
    }
    if (strcmp(argv[1], "idle") == 0) pause();
    for (size_t i = 0; i < other; i++) {
        q[i] = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        CHECK(q[i] != MAP_FAILED);
        noise(q[i], MIB, i), sleep_ms(20);
    }
    if (other > 0) sleep_ms(500);
    noise(p, bytes, other);
    if (other > 0) sleep_ms(200);
    check_noise(p, bytes, other);
    for (size_t i = 0; i < other; i++) check_noise(q[i], MIB, i);
    puts("ok");
    return 0;
}
