/* heap MIB [unmanaged MIB]: fills memory with what nothing compresses, and looks at it again. With a second number, as much
 * again of a kind that Outswap leaves to the kernel (the mapping of a stack) follows, slowly, and stays for a second. */
#include "../calls/common.h"

int main(int argc, char **argv) {
    CHECK(argc > 1);
    size_t n = atol(argv[1]) * MIB, more = argc > 2 ? atol(argv[2]) * MIB : 0;
    char *p = fresh(n / PAGE);
    noise(p, n, 1);
    if (more) {
        char *q = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        CHECK(q != MAP_FAILED);
        for (size_t at = 0; at < more; at += MIB) noise(q + at, MIB, at), sleep_ms(15);
        sleep_ms(1000);
        for (size_t at = 0; at < more; at += MIB) check_noise(q + at, MIB, at);
    }
    check_noise(p, n, 1);
    puts("ok");
    return 0;
}
