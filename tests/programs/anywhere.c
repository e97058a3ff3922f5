/* Asks for memory all over the address space, as programs do that want to lie at random places (Go's runtime), and has the kernel read
 * into it and write from it. Where it does not get a place, it goes without. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PLACES = 128, BYTES = 1 << 16 };

int main(void) {
    for (unsigned long i = 1; i < PLACES; i++) {
        char *want = (char *)(i << 40);
        char *got = mmap(want, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) got = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) return 1;
        int ends[2];
        char text[] = "as it was";
        if (pipe(ends) || write(ends[1], text, sizeof text) != sizeof text) return 2;
        if (read(ends[0], got, BYTES) != sizeof text || memcmp(got, text, sizeof text)) return 3;
        if (write(ends[1], got, sizeof text) != sizeof text) return 4;
        close(ends[0]), close(ends[1]);
        if (munmap(got, BYTES)) return 5;
    }
    puts("ok");
    return 0;
}
