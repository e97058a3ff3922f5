/* hostile WAY [FILE]: a child that gave up its rights does what it can to what the processes of the tree share; the parent,
 * which kept its own, goes on. WAY is what it does: `preload` puts FILE where the path of a library is, `truncate` makes
 * shared files empty, `lengths` puts false numbers everywhere, `noise` random bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *way, *file;

static void harm(char *at, size_t n) {
    if (!strcmp(way, "preload")) {
        static const char name[] = "liboutswap_";
        for (char *p = at; (p = memmem(p, at + n - p, name, sizeof name - 1)); p++) {
            char *start = p;
            while (start > at && start[-1]) start--;
            if (start + strlen(file) + 1 < at + n) strcpy(start, file);
            p = start + strlen(file) < p ? p : start + strlen(file);
        }
    } else if (!strcmp(way, "lengths")) {
        for (size_t i = 0; i + 8 <= n; i += 8) {
            uint32_t two[2] = {2, 100000};
            memcpy(at + i, two, sizeof two);
        }
    } else if (!strcmp(way, "noise")) {
        uint64_t x = 88172645463325252UL;
        for (size_t i = 0; i + 8 <= n; i += 8) x ^= x << 13, x ^= x >> 7, x ^= x << 17, memcpy(at + i, &x, 8);
    }
}
/* Every shared mapping of ours that can be written, or made so. */
static void mappings(void) {
    static char text[1 << 20];
    int fd = open("/proc/self/maps", O_RDONLY);
    size_t have = 0;
    for (ssize_t r; (r = read(fd, text + have, sizeof text - 1 - have)) > 0;) have += r;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || rights[3] != 's' || !strstr(line, "outswap")) continue;
        if (rights[1] != 'w' && mprotect((void *)start, end - start, PROT_READ | PROT_WRITE)) continue;
        harm((char *)start, end - start);
    }
    close(fd);
}
/* Every descriptor of ours to memory, opened again or as it is. */
static void descriptors(void) {
    for (int i = 3; i < 5000; i++) {
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = 0;
        if (!strstr(target, "memfd:outswap")) continue;
        int again = open(path, O_RDWR);
        struct stat st;
        for (int k = 0; k < 2; k++) {
            int fd = k ? again : i;
            if (fd < 0 || stat(path, &st)) continue;
            if (!strcmp(way, "truncate")) {
                if (ftruncate(fd, 0) == 0 && write(2, "truncated\n", 10) < 0) _exit(3);
                if (ftruncate(fd, st.st_size * 2) == 0 && write(2, "grown\n", 6) < 0) _exit(3);
                continue;
            }
            char *p = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (p == MAP_FAILED) continue;
            harm(p, st.st_size);
        }
    }
}
int main(int argc, char **argv) {
    if (argc < 2) return 2;
    way = argv[1], file = argc > 2 ? argv[2] : "";
    size_t bytes = 40 << 20;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 2;
    for (size_t i = 0; i < bytes; i += 4096) *(size_t *)(p + i) = i;
    int status;
    pid_t pid = fork();
    if (!pid) {
        if (geteuid() == 0 && (setgid(65534) || setuid(65534))) _exit(3);
        prctl(PR_SET_DUMPABLE, 1);
        mappings(), descriptors();
        /* Ends at once, and in a way that runs nothing more of ours. */
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, &status, 0);
    usleep(200000);
    for (size_t i = 0; i < bytes; i += 4096)
        if (*(size_t *)(p + i) != i) return 4;
    pid = fork();
    if (!pid) {
        for (size_t i = 0; i < bytes; i += 4096)
            if (*(size_t *)(p + i) != i) _exit(4);
        execl("/bin/true", "true", NULL);
        _exit(5);
    }
    waitpid(pid, &status, 0);
    if (status) {
        fprintf(stderr, "the executed program ended with %#x\n", status);
        return 6;
    }
    puts("ok");
    return 0;
}
