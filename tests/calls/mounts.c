/* The calls of mounts and file systems, on names that are not there and on what every process may ask. */
#include "alike.h"
#include <linux/mount.h>
#include <sys/quota.h>

enum { STATMOUNT = 457, LISTMOUNT = 458, OPEN_TREE_ATTR = 467, LISTNS = 470 };
struct request {
    uint32_t size, spare;
    uint64_t id, parameter;
};
struct attributes {
    uint64_t set, clear, propagation, userns_fd;
};
static void closed(long fd) {
    if (fd >= 0) close(fd);
}
int main(void) {
    tmpdir();
    OK(mkdir("here", 0755));
    closed(ALIKE_FD(syscall(SYS_fsopen, text("outswap-none"), 0)));
    long fs = ALIKE_FD(syscall(SYS_fsopen, text("tmpfs"), 0));
    ALIKE(syscall(SYS_fsconfig, fs, 1, text("size"), text("1M"), 0));
    ALIKE(syscall(SYS_fsconfig, fs, 1, text("outswap-none"), text("1M"), 0));
    ALIKE(syscall(SYS_fsconfig, fs, 2, text("outswap-none"), zeros(5000), 5000));
    BAD(syscall(SYS_fsconfig, fs >= 0 ? fs : 0, 1, bad_in()[2], str("1M"), 0) == -1 && errno == EINVAL ? (errno = EPERM, -1) : -1);
    closed(fs);
    closed(ALIKE_FD(syscall(SYS_fspick, AT_FDCWD, text("here"), 0)));
    ALIKE(syscall(SYS_fspick, AT_FDCWD, text("absent"), 0));
    closed(ALIKE_FD(syscall(SYS_open_tree, AT_FDCWD, text("here"), 0)));
    ALIKE(syscall(SYS_open_tree, AT_FDCWD, text("absent"), 0));
    BAD(syscall(SYS_open_tree, AT_FDCWD, bad_in()[2], 0));
    ALIKE(syscall(OPEN_TREE_ATTR, AT_FDCWD, text("absent"), 0, THE(struct attributes, 1, 0, 0, 0), 32));
    ALIKE(syscall(SYS_move_mount, AT_FDCWD, text("absent"), AT_FDCWD, text("here"), 0));
    ALIKE(syscall(SYS_move_mount, AT_FDCWD, text("here"), AT_FDCWD, text("absent"), 0));
    ALIKE(syscall(SYS_mount_setattr, AT_FDCWD, text("absent"), 0, THE(struct attributes, 1, 0, 0, 0), 32));
    ALIKE(syscall(SYS_mount_setattr, AT_FDCWD, text("here"), 0, THE(struct attributes, 1UL << 60, 0, 0, 0), 32));
    /* The mount below the root directory: its number, then what it is, then those below it. */
    struct statx x;
    OK(statx(AT_FDCWD, "/", 0, 0x4000, &x));
    uint64_t mount = x.stx_mnt_id;
    char *out[2];
    ALIKE(syscall(STATMOUNT, THE(struct request, 24, 0, mount, 1 | 2), out[in_evicted] = zeros(5000), 5000, 0));
    OK(memcmp(out[0], out[1], 512));
    BAD(syscall(STATMOUNT, bad_in()[2], zeros(512), 512, 0));
    ALIKE(syscall(LISTMOUNT, THE(struct request, 24, 0, ~0UL, 0), out[in_evicted] = zeros(8 * 1024), 1024, 0));
    OK(memcmp(out[0], out[1], 8 * 1024));
    ALIKE(syscall(LISTNS, zeros(64), zeros(512), 64, 0));
    struct stat s;
    OK(stat("/", &s));
    ALIKE(syscall(SYS_ustat, s.st_dev, zeros(32)));
    ALIKE(syscall(SYS_sysfs, 1, text("tmpfs")));
    ALIKE(syscall(SYS_sysfs, 2, 0, zeros(256)));
    ALIKE(syscall(SYS_quotactl, QCMD(Q_GETQUOTA, USRQUOTA), text("absent"), 0, zeros(200)));
    ALIKE(syscall(SYS_quotactl, QCMD(Q_GETFMT, USRQUOTA), text("/dev/null"), 0, zeros(8)));
    int here = open("here", O_RDONLY);
    ALIKE(syscall(SYS_quotactl_fd, here, QCMD(Q_GETINFO, USRQUOTA), 0, zeros(200)));
    close(here);
    ALIKE(syscall(SYS_pivot_root, text("absent"), text("absent")));
    puts("ok");
    return 0;
}
