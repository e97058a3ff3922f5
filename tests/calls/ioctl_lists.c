/* Long lists behind a structure: extents of a file (FS_IOC_FIEMAP), where the file system tells them; and the auxiliary vector. */
#include "common.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

enum { BLOCKS = 600, PAGES = 64 };

static int ask(int fd, struct fiemap *map) {
    memset(map, 0, sizeof *map);
    map->fm_length = ~0ULL, map->fm_extent_count = BLOCKS, map->fm_flags = FIEMAP_FLAG_SYNC;
    return ioctl(fd, FS_IOC_FIEMAP, map);
}
static void extents(void) {
    static union {
        struct fiemap map;
        char room[PAGES * PAGE];
    } here;
    int fd = open("extents", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    for (int i = 0; i < BLOCKS; i++) EQ(pwrite(fd, "x", 1, 2L * i * PAGE), 1);
    int plain = ask(fd, &here.map), error = errno;
    char *p = fresh(PAGES);
    for (int round = 0; round < 3; round++) {
        noise(p, PAGES * PAGE, round), evict(p, PAGES * PAGE);
        struct fiemap *map = (struct fiemap *)p;
        if (plain) {
            expect_errno(ask(fd, map), error);
            continue;
        }
        OK(ask(fd, map));
        EQ(map->fm_mapped_extents, here.map.fm_mapped_extents);
        OK(memcmp(map->fm_extents, here.map.fm_extents, map->fm_mapped_extents * sizeof *map->fm_extents));
    }
    close(fd);
}
/* Its end lies in a page that is out. */
static void auxiliary(void) {
    static char here[1024];
    int bytes = prctl(PR_GET_AUXV, here, sizeof here, 0, 0);
    if (bytes < 0) return;
    char *p = fresh(2), *at = p + PAGE - 128;
    for (int round = 0; round < 3; round++) {
        noise(p, 2 * PAGE, round), evict(p, 2 * PAGE);
        EQ(prctl(PR_GET_AUXV, at, sizeof here, 0, 0), bytes);
        OK(memcmp(at, here, bytes));
    }
}
int main(void) {
    tmpdir();
    extents();
    auxiliary();
    puts("ok");
    return 0;
}
