/* A child without rights writes nonsense over all memory that it shares with other processes, and tries to change and to
 * cut the files behind it. The others fork, execute and keep their content meanwhile. */
#include "common.h"
#include <grp.h>
#include <sys/prctl.h>

enum { PAGES = 256, ROUNDS = 24 };

/* Tries to change the file of a descriptor. One that is mapped for writing here may change, but not in length. */
static void attack_file(int fd, int is_shared) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return;
    expect_errno(ftruncate(fd, 0), EPERM);
    expect_errno(ftruncate(fd, st.st_size * 2), EPERM);
    if (is_shared) return;
    CHECK(pwrite(fd, "nonsense", 8, 0) < 0);
    CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) CHECK(pwrite(again, "nonsense", 8, 0) < 0);
    if (again >= 0) close(again);
}

static void attack(void) {
    struct {
        char *start, *end;
        unsigned long inode;
    } shared[16];
    int count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end, inode;
        char access[8];
        if (!strstr(line, "/memfd:") || sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, access, &inode) != 4) continue;
        if (strcmp(access, "rw-s") || count == 16) continue;
        shared[count].start = (char *)start, shared[count].end = (char *)end, shared[count++].inode = inode;
    }
    fclose(maps);
    for (int fd = 3; fd < 1100; fd++) {
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = 0;
        struct stat st;
        if (strncmp(target, "/memfd:", 7) || stat(path, &st)) continue;
        int is_shared = 0;
        for (int i = 0; i < count; i++) is_shared |= shared[i].inode == st.st_ino;
        attack_file(fd, is_shared);
    }
    uint64_t state = 88172645463325252u;
    for (unsigned round = 0;; round++) {
        for (int i = 0; i < count; i++)
            for (volatile uint64_t *p = (uint64_t *)shared[i].start; (char *)p < shared[i].end; p++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                *p = round % 4 == 0 ? state : round % 4 == 1 ? 0 : round % 4 == 2 ? ~(uint64_t)0 : state & 0x00000fff0000ffff;
            }
        usleep(2000);
    }
}

int main(int argc, char **argv) {
    const char *preload = getenv("LD_PRELOAD");
    if (argc == 2) return strcmp(argv[1], preload ? preload : "") ? 3 : 0;
    char self[PATH_MAX];
    CHECK(realpath("/proc/self/exe", self));
    char *mine = fresh(PAGES);
    fill(mine, PAGES * PAGE, 50), evict(mine, PAGES * PAGE);
    pid_t attacker = fork();
    if (!attacker) {
        /* Also where the others fail: nobody else would end it. A change of rights takes the wish back. */
        OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
        if (geteuid() == 0) {
            OK(setgroups(0, NULL));
            OK(setgid(65534));
            OK(setuid(65534));
            OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
        }
        attack();
    }
    /* From here on nothing says that there is room in any store: what is promised is the content. */
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        if (!child) {
            char *p = fresh(PAGES);
            fill(p, PAGES * PAGE, i), evict_some(p, PAGES * PAGE), check(p, PAGES * PAGE, i);
            check(mine, PAGES * PAGE, 50);
            if (i % 2) _exit(0);
            execl(self, self, preload ? preload : "", NULL);
            _exit(99);
        }
        expect_exit(child, 0);
        evict_some(mine, PAGES * PAGE), check(mine, PAGES * PAGE, 50);
    }
    /* It must have gone on until now: an attack that failed to start would show nothing. */
    EQ(waitpid(attacker, NULL, WNOHANG), 0);
    OK(kill(attacker, SIGKILL));
    EQ(waitpid(attacker, NULL, 0), attacker);
    puts("ok");
    return 0;
}
