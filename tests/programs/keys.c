/* keys read|overwrite: what a child without rights can do with what its parent writes to the swap file.
 *
 * `read`: prints what each of both has after the parent, since the fork, wrote as much as it has room for: the keys that lie
 * ready in its memory as AES-128 key schedules, and the files without a name that it holds (with W if they can be written).
 * The parent says of each file whether it grew.
 * `overwrite`: the child overwrites every such file; the parent looks at its memory. */
#include "../calls/scan.h"
#include <grp.h>
#include <sys/prctl.h>

enum { BYTES = 56 << 20, MOST = 64 };
static unsigned char box[256];
static char *area;
static const char *who;
static struct {
    dev_t dev;
    ino_t ino;
    blkcnt_t blocks;
} before[MOST];
static int known;

static unsigned char twice(unsigned char x) { return (unsigned char)(x << 1 ^ (x & 0x80 ? 0x1b : 0)); }
static void make_box(void) {
    unsigned char p = 1, q = 1;
    do {
        p = p ^ twice(p);
        q ^= q << 1, q ^= q << 2, q ^= q << 4;
        if (q & 0x80) q ^= 0x09;
        unsigned char x = q ^ (unsigned char)(q << 1 | q >> 7) ^ (unsigned char)(q << 2 | q >> 6) ^
            (unsigned char)(q << 3 | q >> 5) ^ (unsigned char)(q << 4 | q >> 4);
        box[p] = x ^ 0x63;
    } while (p != 1);
    box[0] = 0x63;
}
/* Whether the 32 bytes are a key and its first round key. */
static int schedule(const unsigned char *k) {
    unsigned char next[16];
    for (int i = 0; i < 4; i++) next[i] = k[i] ^ box[k[12 + (i + 1) % 4]] ^ (i == 0);
    for (int i = 4; i < 16; i++) next[i] = next[i - 4] ^ k[i];
    return !memcmp(next, k + 16, 16);
}
static void look(unsigned long address, const uint64_t *page, void *arg) {
    (void)address, (void)arg;
    const unsigned char *p = (const unsigned char *)page;
    for (size_t i = 0; i + 32 <= PAGE; i += 8)
        if (schedule(p + i)) {
            printf("%s key ", who);
            for (int k = 0; k < 16; k++) printf("%02x", p[i + k]);
            puts("");
        }
}
static int swap_file(int fd, struct stat *st) {
    char path[64], target[512];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    /* By its name: the descriptor says that it is none. */
    if (n <= 0 || stat(path, st) || !S_ISREG(st->st_mode) || st->st_nlink != 0) return 0;
    target[n] = 0;
    return !strstr(target, "memfd");
}
static void note_files(void) {
    struct stat st;
    for (int i = 3; i < 5000 && known < MOST; i++)
        if (swap_file(i, &st)) before[known].dev = st.st_dev, before[known].ino = st.st_ino, before[known++].blocks = st.st_blocks;
}
static void print_files(void) {
    struct stat st;
    for (int i = 3; i < 5000; i++) {
        if (!swap_file(i, &st)) continue;
        int grew = st.st_blocks > 0;
        for (int k = 0; k < known; k++)
            if (before[k].dev == st.st_dev && before[k].ino == st.st_ino) grew = st.st_blocks > before[k].blocks;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        int again = open(path, O_RDWR), writable = (fcntl(i, F_GETFL) & O_ACCMODE) != O_RDONLY || again >= 0;
        if (again >= 0) close(again);
        printf("%s file %lu:%lu %s %s\n", who, (unsigned long)st.st_dev, (unsigned long)st.st_ino, grew ? "grew" : "same",
            writable ? "W" : "R");
    }
}
static int overwrite(void) {
    static char bytes[1 << 16];
    memset(bytes, 0x5a, sizeof bytes);
    struct stat st;
    for (int i = 3; i < 5000; i++) {
        if (!swap_file(i, &st)) continue;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        int list[2] = {i, open(path, O_RDWR)};
        for (int k = 0; k < 2; k++)
            for (off_t at = 0; at < st.st_size && pwrite(list[k], bytes, sizeof bytes, at) > 0; at += sizeof bytes) {
            }
    }
    return 0;
}
int main(int argc, char **argv) {
    CHECK(argc == 2);
    make_box();
    area = fresh(BYTES / PAGE);
    noise(area, BYTES, 1), check_noise(area, BYTES, 1);
    int go[2];
    OK(pipe(go));
    note_files();
    fflush(stdout);
    pid_t pid = CHILD({
        char byte;
        if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) _exit(3);
        prctl(PR_SET_DUMPABLE, 1);
        EQ(read(go[0], &byte, 1), 1);
        who = "child";
        if (!strcmp(argv[1], "overwrite")) _exit(overwrite());
        each_page(look, NULL), print_files();
        fflush(stdout);
    });
    if (!strcmp(argv[1], "read")) {
        noise(area, BYTES, 2), check_noise(area, BYTES, 2);
        who = "parent";
        each_page(look, NULL), print_files();
        fflush(stdout);
    }
    EQ(write(go[1], "x", 1), 1);
    expect_exit(pid, 0);
    check_noise(area, BYTES, argv[1][0] == 'r' ? 2 : 1);
    puts("ok");
    return 0;
}
