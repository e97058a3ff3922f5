/* held KIND N [MS|DIR]: has memory of a kind, and stays with it.
 * touch: N pages, touched; stays for MS. out: the same, and has them paged out first. shared: N pages of shared anonymous memory, and a
 * fork. noise: N MiB that do not compress; makes DIR/ready, waits for DIR/go, looks at all of it, and says how many bytes it has written. */
#include "../calls/common.h"

static char *map(size_t bytes, int kind) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* What the kernel says. */
static unsigned long written(void) {
    char line[128];
    unsigned long bytes = 0;
    FILE *io = fopen("/proc/self/io", "r");
    CHECK(io);
    while (fgets(line, sizeof line, io)) sscanf(line, "wchar: %lu", &bytes);
    fclose(io);
    return bytes;
}

int main(int argc, char **argv) {
    CHECK(argc > 3);
    size_t n = atol(argv[2]);
    if (!strcmp(argv[1], "noise")) {
        char ready[PATH_MAX], go[PATH_MAX];
        snprintf(ready, sizeof ready, "%s/ready", argv[3]);
        snprintf(go, sizeof go, "%s/go", argv[3]);
        char *p = map(n * MIB, MAP_PRIVATE);
        for (size_t at = 0; at < n * MIB; at += MIB) noise(p + at, MIB, at);
        int fd = open(ready, O_WRONLY | O_CREAT, 0666);
        CHECK(fd >= 0 && close(fd) == 0);
        while (access(go, F_OK) != 0) sleep_ms(10);
        for (size_t at = 0; at < n * MIB; at += MIB) check_noise(p + at, MIB, at);
        printf("wrote %lu\n", written());
    } else if (!strcmp(argv[1], "shared")) {
        char *p = map(n * PAGE, MAP_SHARED);
        for (size_t i = 0; i < n; i++) p[i * PAGE] = i + 1;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        CHECK(waitpid(child, NULL, 0) == child);
    } else {
        char *p = map(n * PAGE, MAP_PRIVATE);
        for (size_t i = 0; i < n; i++) p[i * PAGE] = i * 31 + 1;
        if (!strcmp(argv[1], "out")) CHECK(madvise(p, n * PAGE, MADV_PAGEOUT) == 0);
        sleep_ms(atol(argv[3]));
        for (size_t i = 0; i < n; i++) CHECK(p[i * PAGE] == (char)(i * 31 + 1));
    }
    puts("ok");
    return 0;
}
