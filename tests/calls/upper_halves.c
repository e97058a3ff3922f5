/* Arguments that are ints to the kernel, with anything at all above them in their registers. What they are the length of ends where memory ends, and
 * was evicted. Each call is made as it is meant, on memory of the program itself, and has to answer alike with each of the other registers. */
#include "common.h"
#include "own_call.h"
#include <linux/bpf.h>
#include <netinet/in.h>

/* Looks like what is negative, no address, too long, or as if there were nothing. */
static const unsigned long above[] = {0xdead123400000000, 0xffffffff00000000, 0x8000000000000000, 0x7fff00000000, 1UL << 32};
enum { TURNS = 1 + sizeof above / sizeof *above };
/* 0: as it is meant; then one of `above`. */
static int turn;
static char own_data[1 << 16] __attribute__((aligned(64)));
static size_t own_used;

static long wide(int value) { return turn ? (long)(above[turn - 1] | (unsigned)value) : value; }
/* The last n bytes before a hole; of a length as the kernel takes it, so that their start may be at no multiple of anything. */
static void *at_end(const void *from, size_t n) {
    if (!turn) {
        void *p = own_data + own_used;
        own_used += (n + 63) & ~63UL;
        CHECK(own_used <= sizeof own_data);
        return memcpy(p, from, n);
    }
    static char *ends[16];
    static unsigned next;
    char **end = &ends[next++ % 16];
    if (!*end) *end = guarded(2) + 2 * PAGE;
    memcpy(*end - n, from, n), evict(*end - n, n);
    return *end - n;
}
static long made(long nr, long a, long b, long c, long d, long e, long f) {
    if (!raw_mode) return call6(nr, a, b, c, d, e, f);
    long result = syscall(nr, a, b, c, d, e, f);
    return result < 0 ? -errno : result;
}
#define MADE(n, ...) MADE_(n, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define MADE_(n, a, b, c, d, e, f, ...) made(SYS_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* The first turn says what is right. */
#define ALIKE(call)                                                                                                  \
    ({                                                                                                               \
        static long first_[2];                                                                                       \
        long got_ = (call);                                                                                          \
        if (!turn) first_[raw_mode] = got_;                                                                          \
        if (got_ != first_[raw_mode]) die("%s:%d: %s gave %ld, and with 0x%lx above it %ld (raw %d)", __FILE__,     \
            __LINE__, #call, first_[raw_mode], above[turn - 1], got_, raw_mode);                                     \
        got_;                                                                                                        \
    })

static void addresses(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, bound;
    socklen_t size = sizeof any;
    int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0), bytes = 65536, got;
    char text[8];
    CHECK(one >= 0 && two >= 0);
    EQ(ALIKE(MADE(bind, one, at_end(&any, size), wide(size))), 0);
    OK(getsockname(one, (void *)&bound, &size));
    EQ(ALIKE(MADE(setsockopt, one, SOL_SOCKET, SO_RCVBUF, at_end(&bytes, sizeof bytes), wide(sizeof bytes))), 0);
    size = sizeof got, OK(getsockopt(one, SOL_SOCKET, SO_RCVBUF, &got, &size)), CHECK(got >= bytes);
    EQ(ALIKE(MADE(sendto, two, at_end("first", 6), 6, 0, at_end(&bound, sizeof bound), wide(sizeof bound))), 6);
    EQ(ALIKE(MADE(connect, two, at_end(&bound, sizeof bound), wide(sizeof bound))), 0);
    struct iovec part = {"second", 7};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}, *sent = at_end(&message, sizeof message);
    EQ(ALIKE(MADE(sendmmsg, two, sent, wide(1), 0)), 1), EQ(sent->msg_len, 7);
    EQ(recv(one, text, 8, 0), 6), CHECK(!strcmp(text, "first"));
    part = (struct iovec){text, 8}, sent = at_end(&message, sizeof message);
    EQ(ALIKE(MADE(recvmmsg, one, sent, wide(1), MSG_DONTWAIT, 0)), 1), EQ(sent->msg_len, 7), CHECK(!strcmp(text, "second"));
    /* What is refused is refused. */
    EQ(ALIKE(MADE(bind, two, at_end(&any, sizeof any), wide(-1))), -EINVAL);
    EQ(ALIKE(MADE(connect, two, at_end(&any, 1), wide(1))), -EINVAL);
    EQ(ALIKE(MADE(setsockopt, one, SOL_SOCKET, SO_RCVBUF, at_end(&bytes, 2), wide(2))), -EINVAL);
    EQ(ALIKE(MADE(sendto, one, at_end("x", 1), 1, 0, at_end(&bound, 16), wide(1000))), -EINVAL);
    OK(close(one)), OK(close(two));
}

static void lengths(void) {
    char none[1000] = {0}, *got = at_end(none, 8);
    EQ(ALIKE(MADE(readlink, at_end("link", 5), got, wide(8))), 8), CHECK(!memcmp(got, "somewher", 8));
    got = at_end(none, 9), EQ(ALIKE(MADE(readlinkat, AT_FDCWD, at_end("link", 5), got, wide(9))), 9);
    CHECK(!memcmp(got, "somewhere", 9));
    EQ(ALIKE(MADE(readlink, at_end("link", 5), at_end(none, 8), wide(0))), -EINVAL);
    EQ(ALIKE(MADE(readlinkat, AT_FDCWD, at_end("link", 5), at_end(none, 8), wide(-8))), -EINVAL);
    /* Who else writes messages does not matter: whether they may be read. */
    ALIKE(MADE(syslog, 3, at_end(none, 1000), wide(1000)) >= 0), ALIKE(MADE(syslog, 3, at_end(none, 16), wide(-1)));
    /* What changes nothing. */
    ALIKE(MADE(sethostname, at_end(none, 64), wide(65))), ALIKE(MADE(setdomainname, at_end(none, 64), wide(-1)));
    union bpf_attr attr = {0};
    ALIKE(MADE(bpf, 9999, at_end(&attr, 16), wide(16)));
    gid_t groups[64];
    int count = getgroups(64, groups);
    CHECK(count >= 0 && count <= 16), ALIKE(MADE(getgroups, wide(16), at_end(none, 64)));
}

static void scheduling(void) {
    cpu_set_t cpus = {0};
    unsigned attributes[12] = {0}, *read_back = at_end(attributes, 48);
    cpu_set_t *set = at_end(&cpus, sizeof cpus);
    CHECK(ALIKE(MADE(sched_getaffinity, 0, wide(sizeof cpus), set)) > 0), CHECK(CPU_COUNT(set) > 0), cpus = *set;
    EQ(ALIKE(MADE(sched_setaffinity, 0, wide(sizeof cpus), at_end(&cpus, sizeof cpus))), 0);
    EQ(ALIKE(MADE(sched_getaffinity, 0, wide(4), at_end(&cpus, 8))), -EINVAL);
    EQ(ALIKE(MADE(sched_getattr, 0, read_back, wide(48), 0)), 0), EQ(read_back[1], SCHED_OTHER);
    EQ(ALIKE(MADE(sched_getattr, 0, at_end(attributes, 8), wide(8), 0)), -EINVAL);
}

static void all(void) {
    for (turn = 0; turn < TURNS; turn++) own_used = 0, addresses(), lengths(), scheduling();
}
int main(void) {
    alarm(60), tmpdir(), pressure(60);
    OK(symlink("somewhere", "link"));
    for (raw_mode = 0; raw_mode < 2; raw_mode++) all();
    puts("ok");
    return 0;
}
