/* Pointers in structures: filters of sockets and of seccomp, ethtool, attributes of terminals and maps of BPF, with the structure and
 * what it points to evicted in turn. */
#include "alike.h"
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static struct sock_filter instructions[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_STMT(BPF_RET | BPF_K, 0x7fff0000)};
/* Where the structure lies is one thing, where what it points to lies another. */
static struct sock_fprog *filter(int structure_is_evicted) {
    struct sock_fprog f = {2, in(instructions, sizeof instructions)};
    int turn = in_evicted;
    in_evicted = structure_is_evicted;
    void *p = in(&f, sizeof f);
    in_evicted = turn;
    return p;
}
static void sockets(int evicted) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    OK(ALIKE(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, filter(evicted), sizeof(struct sock_fprog))));
    struct sock_filter *back = OUT(struct sock_filter);
    back = place(2 * sizeof *back, 8), memset(back, 1, 2 * sizeof *back), evict(back, 2 * sizeof *back);
    EQ(ALIKE(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, back, THE(socklen_t, 2))), 0);
    EQ(back[0].code, instructions[0].code), EQ(back[1].k, instructions[1].k);
    struct sock_fprog bad = {2, bad_in()[2]};
    BAD(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &bad, sizeof bad));
    OK(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one));
    OK(bind(fd, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)},
        sizeof(struct sockaddr_in)));
    ALIKE(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, filter(evicted), sizeof(struct sock_fprog)));
    ALIKE(({
        struct ifreq r = {.ifr_name = "lo", .ifr_data = (void *)THE(struct ethtool_drvinfo, .cmd = ETHTOOL_GDRVINFO)};
        int turn = in_evicted;
        in_evicted = evicted;
        struct ifreq *p = in(&r, sizeof r);
        in_evicted = turn;
        ioctl(fd, SIOCETHTOOL, p);
    }));
    struct ifreq r = {.ifr_name = "lo", .ifr_data = bad_in()[2]};
    BAD(ioctl(fd, SIOCETHTOOL, &r) == -1 && errno == ENODEV ? (errno = EPERM, -1) : -1);
    close(fd);
}
/* The filters stay, so each is installed by a child. They let everything pass. */
static void sandbox(int evicted) {
    for (int how = 0; how < 2; how++)
        for (int turn = 0; turn < 2; turn++)
            expect_exit(CHILD({
                OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
                in_evicted = turn;
                if (how)
                    OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter(evicted)));
                else
                    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter(evicted)));
                EQ(prctl(PR_GET_SECCOMP), 2);
            }),
                0);
    struct sock_fprog bad = {2, bad_in()[2]};
    expect_exit(CHILD({
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        BAD(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &bad));
        BAD(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, bad_in()[2]));
    }),
        0);
    ALIKE(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, THE(uint32_t, SECCOMP_RET_TRAP)));
    ALIKE(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, zeros(6)));
}
static void maps(void) {
    union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8000, .max_entries = 2};
    int fd = ALIKE_FD(syscall(SYS_bpf, BPF_MAP_CREATE, in(&a, sizeof a), sizeof a));
    if (fd < 0) return;
    char content[8000], *out;
    fill(content, sizeof content, 2);
    for (int evicted = 0; evicted < 2; evicted++) {
        ALIKE(({
            union bpf_attr u = {.map_fd = fd, .key = (uintptr_t)THE(int, 1), .value = (uintptr_t)in(content, sizeof content)};
            int turn = in_evicted;
            in_evicted = evicted;
            long r = syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, in(&u, sizeof u), sizeof u);
            in_evicted = turn;
            OK(r);
            r;
        }));
        in_evicted = 1;
        out = place(sizeof content, 8), memset(out, 0, sizeof content), evict(out, sizeof content);
        union bpf_attr u = {.map_fd = fd, .key = (uintptr_t)THE(int, 1), .value = (uintptr_t)out};
        OK(syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, evicted ? in(&u, sizeof u) : &u, sizeof u));
        check(out, sizeof content, 2);
    }
    close(fd);
}
/* A structure of a newer kind, which says its own length: PAGEMAP_SCAN. */
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any_of, result;
};
static void pagemap(void) {
    int fd = open("/proc/self/pagemap", O_RDONLY);
    static char here[4 * PAGE] __attribute__((aligned(4096)));
    memset(here, 1, sizeof here);
    struct range {
        uint64_t start, end, categories;
    } *found;
    ALIKE(({
        found = zeros(16 * sizeof *found);
        struct scan s = {.size = sizeof s, .start = (uintptr_t)here, .end = (uintptr_t)here + sizeof here,
            .vec = (uintptr_t)found, .vec_len = 16, .mask = 1 << 3, .result = 1 << 3};
        long r = ioctl(fd, 0xc0606610, &s);
        if (r > 0) EQ(found[0].start, here);
        r;
    }));
    close(fd);
}
int main(void) {
    tmpdir();
    for (int evicted = 0; evicted < 2; evicted++) sockets(evicted), sandbox(evicted);
    maps();
    pagemap();
    ALIKE_FD(syscall(SYS_perf_event_open, THE(struct perf_event_attr, .type = 9999, .size = sizeof(struct perf_event_attr)),
        0, -1, -1, 0));
    puts("ok");
    return 0;
}
