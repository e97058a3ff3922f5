/* uname, sysinfo, getgroups, getresuid, getresgid. */
#include "common.h"
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void test(void) {
    for (int kind = 0; kind < 2; kind++) {
        struct utsname *u = kind ? OLD(struct utsname) : OUT(struct utsname);
        OK(CALL(uname, u)), OK(strcmp(u->sysname, "Linux"));
        struct sysinfo *s = kind ? OLD(struct sysinfo) : OUT(struct sysinfo);
        OK(CALL(sysinfo, s)), CHECK(s->totalram > 0 && s->procs > 0);
        unsigned *id = place(12, 4);
        if (kind) memset(id, 0xa5, 12), evict(id, 12);
        OK(CALL(getresuid, id, id + 1, id + 2)), EQ(id[0], getuid()), EQ(id[1], geteuid());
        id = OUT(unsigned);
        OK(CALL(getresgid, id, OUT(unsigned), OUT(unsigned))), EQ(*id, getgid());
        gid_t *groups = place(65536 * sizeof *groups, 4);
        long n = CALL(getgroups, 0, NULL);
        EQ(CALL(getgroups, 65536, groups), n);
        if (n) EFAULT_OUT(p, CALL(getgroups, 65536, p));
        if (n > 1) expect_errno(CALL(getgroups, 1, groups), EINVAL);
    }
    EFAULT_OUT(p, CALL(uname, p));
    EFAULT_EDGE(p, CALL(uname, p));
    EFAULT_OUT(p, CALL(sysinfo, p));
    EFAULT_EDGE(p, CALL(sysinfo, p));
    EFAULT_OUT(p, CALL(getresuid, p, OUT(unsigned), OUT(unsigned)));
    EFAULT_OUT(p, CALL(getresgid, OUT(unsigned), p, OUT(unsigned)));
    expect_errno(CALL(getgroups, minus_one, OUT(gid_t)), EINVAL);
    char *host = place(256, 1);
    OK(gethostname(host, 256)), CHECK(*host);
}
BOTH_WAYS(test)
