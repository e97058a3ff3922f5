/* Rules of packet filters are replaced by an option of a socket, whose structure says where the counters of the rules before are to go. In
 * a network namespace of its own, where that can be had and the kernel has such tables. */
#include "alike.h"
#include <arpa/inet.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <netinet/in.h>

/* The tables of both families have the same form. */
_Static_assert(sizeof(struct ipt_replace) == sizeof(struct ip6t_replace), "a form");
_Static_assert(sizeof(struct ipt_getinfo) == sizeof(struct ip6t_getinfo), "a form");
_Static_assert((int)IPT_SO_SET_REPLACE == (int)IP6T_SO_SET_REPLACE, "a number");
_Static_assert((int)IPT_SO_GET_INFO == (int)IP6T_SO_GET_INFO, "a number");
_Static_assert((int)IPT_SO_GET_ENTRIES == (int)IP6T_SO_GET_ENTRIES, "a number");

/* The rules are put back as they are, with what is evicted in turn: the counters, or the structure, too. */
static void replace(int family, int level) {
    int fd = socket(family, SOCK_RAW, IPPROTO_RAW);
    struct ipt_getinfo info = {.name = "filter"};
    socklen_t n = sizeof info;
    if (fd < 0 || getsockopt(fd, level, IPT_SO_GET_INFO, &info, &n)) return;
    static char entries[1 << 16], table[1 << 16];
    struct ipt_get_entries *e = (void *)entries;
    strcpy(e->name, "filter"), e->size = info.size;
    n = sizeof *e + info.size;
    CHECK(n <= sizeof entries);
    OK(getsockopt(fd, level, IPT_SO_GET_ENTRIES, e, &n));
    for (int evicted = 0; evicted < 2; evicted++)
        for (int turn = 0; turn < 2; turn++) {
            size_t bytes = info.num_entries * sizeof(struct xt_counters);
            char *counters = place(bytes, 16);
            memset(counters, 7, bytes), evict(counters, bytes);
            struct ipt_replace *r = (void *)table;
            *r = (struct ipt_replace){.name = "filter", .valid_hooks = info.valid_hooks, .num_entries = info.num_entries,
                .size = info.size, .num_counters = info.num_entries, .counters = (void *)counters};
            memcpy(r->hook_entry, info.hook_entry, sizeof r->hook_entry);
            memcpy(r->underflow, info.underflow, sizeof r->underflow);
            memcpy(r->entries, e->entrytable, info.size);
            in_evicted = evicted, own_used = 0;
            OK(CALL(setsockopt, fd, level, IPT_SO_SET_REPLACE, in(r, sizeof *r + info.size), sizeof *r + info.size));
            check_zero(counters, bytes);
            raw_mode = !raw_mode;
        }
    close(fd);
}
/* An option that nothing is known of: a group to listen to. */
static void unknown(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct group_req g = {.gr_interface = 1};
    *(struct sockaddr_in *)&g.gr_group = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("224.0.0.99")};
    ALIKE(({
        long r = setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, in(&g, sizeof g), sizeof g);
        if (r == 0) OK(setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, in(&g, sizeof g), sizeof g));
        r;
    }));
    close(fd);
}
int main(void) {
    tmpdir();
    unknown();
    expect_exit(CHILD({
        if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) _exit(0);
        replace(AF_INET, IPPROTO_IP), replace(AF_INET6, IPPROTO_IPV6);
    }),
        0);
    puts("ok");
    return 0;
}
