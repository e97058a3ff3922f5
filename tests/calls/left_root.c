/* A process that changes its root directory, and whose child gives its rights up there: no descriptor of a directory may lead out of it. */
#include "roots.h"
#include <sys/prctl.h>

enum { PAGES = 256 };
/* Where a program under Outswap has no userfaultfd, a child would have to open its memory by name, which is not there. */
static int forks = 1;

static void *thread(void *p) {
    check(p, PAGES * PAGE, 1);
    return NULL;
}

static void gives_rights_up(int proc, char *p) {
    /* A user namespace may have no other user. */
    if (setresuid(65534, 65534, 65534)) OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    nothing_leads_out(proc);
    pthread_t id;
    OK(pthread_create(&id, NULL, thread, p)), OK(pthread_join(id, NULL));
    evict_some(p, PAGES * PAGE), check(p, PAGES * PAGE, 1);
    nothing_leads_out(proc);
}

static void goes_elsewhere(char *p) {
    int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    CHECK(proc >= 0);
    if (geteuid() != 0) OK(unshare(CLONE_NEWUSER));
    OK(chroot("/proc/self/fdinfo")), OK(chdir("/"));
    evict_some(p, PAGES * PAGE), check(p, PAGES * PAGE, 1);
    pid_t child = fork();
    if (child == 0) gives_rights_up(proc, p), _exit(0);
    int status = -1;
    if (child > 0 || forks) EQ(waitpid(child, &status, 0), child);
    if (forks) EQ(status, 0);
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    nothing_leads_out(proc);
}

int main(void) {
    forks = !opens_memory_by_name();
    /* Who may not go anywhere has nothing to show. */
    pid_t may = fork();
    if (may == 0) _exit((geteuid() != 0 && unshare(CLONE_NEWUSER)) || chroot("/"));
    int status = 0;
    EQ(waitpid(may, &status, 0), may);
    if (status == 0) {
        char *p = fresh(PAGES);
        fill(p, PAGES * PAGE, 1), evict(p, PAGES * PAGE);
        expect_exit(CHILD(goes_elsewhere(p)), 0);
    }
    puts("ok");
    return 0;
}
