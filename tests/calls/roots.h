/* What programs need that lock themselves in: what leads out of another root directory, and whether a child can be had there. */
#ifndef ROOTS_H
#define ROOTS_H
#include "common.h"
#include <dirent.h>

/* Whether a child would have to open its memory by name: under Outswap, where there is no userfaultfd. */
PIECE int opens_memory_by_name(void) {
    if (!getenv("OUTSWAP_E2E_MANAGED")) return 0;
    for (int fd = 0; fd < 1024; fd++) {
        char name[64], to[64] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (readlink(name, to, sizeof to - 1) > 0 && !strcmp(to, "anon_inode:[userfaultfd]")) return 0;
    }
    return 1;
}

/* No descriptor is a directory's, but for that of /proc, through which that is seen. */
PIECE void nothing_leads_out(int proc) {
    int fds = openat(proc, "self/fd", O_RDONLY | O_DIRECTORY);
    CHECK(fds >= 0);
    DIR *dir = fdopendir(fds);
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat status;
        int fd = atoi(entry->d_name);
        if (*entry->d_name == '.' || fd == proc || fd == fds) continue;
        OK(fstatat(fds, entry->d_name, &status, 0));
        if (S_ISDIR(status.st_mode)) die("descriptor %d is a directory's", fd);
    }
    OK(closedir(dir));
}
#endif
