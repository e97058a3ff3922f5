/* random MIB PASSES [READ]: fills memory with bytes that no compressor makes smaller, and compares them PASSES times. With READ, a
 * file, its bytes are read into fresh memory by one call after the other, instead of being made there. With OUTSWAP_E2E_HOLD, a path
 * without an end: PATH.ready is made once all is filled, and PATH.stop is waited for. Prints "ok". */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static const uint64_t SEED = 88172645463325252u;

static void hold(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.ready", path);
    close(open(name, O_CREAT | O_WRONLY, 0644));
    snprintf(name, sizeof name, "%s.stop", path);
    while (access(name, F_OK) != 0) usleep(10000);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t bytes = (size_t)atoi(argv[1]) << 20;
    uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) return 3;
    if (argc > 3) {
        int fd = open(argv[3], O_RDONLY);
        for (size_t at = 0; at < bytes;) {
            ssize_t n = read(fd, (char *)words + at, bytes - at < 65536 ? bytes - at : 65536);
            if (n <= 0) return 4;
            at += n;
        }
    } else {
        uint64_t state = SEED;
        for (size_t i = 0; i < bytes / 8; i++) words[i] = next(&state);
    }
    if (getenv("OUTSWAP_E2E_HOLD")) hold(getenv("OUTSWAP_E2E_HOLD"));
    for (int pass = atoi(argv[2]); pass > 0; pass--) {
        uint64_t state = SEED;
        for (size_t i = 0; i < bytes / 8; i++) {
            if (words[i] != next(&state)) return puts("wrong"), 1;
        }
    }
    puts("ok");
    return 0;
}
