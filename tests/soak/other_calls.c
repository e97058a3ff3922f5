// Random calls that name memory which is evicted, cannot be written or read, or is not there, each told with its result and with what
// it wrote, so that two runs with the same seed can be compared line by line: one plainly, one under Outswap.
//
//   other_calls SEED STEPS        in a directory of its own
#define _GNU_SOURCE
#include "random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>

// Structures with addresses in them have the last pages to themselves: what they hold differs from run to run.
enum { PAGE = 4096, PAGES = 640, BUFFERS = 560 };
enum kind { OPEN, READ, NONE, HOLE, FILED, KINDS };

static char *base;
static unsigned char kinds[PAGES];
static int file, stream[2], dgram[2], packet[2], pipes[2], other_pipe[2], epoll, timer;

static int is(size_t at, size_t len, int write) {
    for (size_t page = at / PAGE; len && page <= (at + len - 1) / PAGE; page++)
        if (page >= PAGES || !(kinds[page] == OPEN || kinds[page] == FILED || (!write && kinds[page] == READ))) return 0;
    return 1;
}
static uint64_t hash_of(size_t at, size_t len) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = at; i < at + len && i < (size_t)PAGES * PAGE; i++)
        if (is(i, 1, 0)) hash = (hash ^ (unsigned char)base[i]) * 1099511628211u;
    return hash;
}
static uint64_t all(void) {
    uint64_t hash = 3;
    for (size_t page = 0; page < PAGES; page++) {
        if (!is(page * PAGE, 1, 0)) continue;
        const uint64_t *words = (const uint64_t *)(base + page * PAGE);
        for (int i = 0; i < PAGE / 8; i++) hash = (hash ^ words[i]) * 1099511628211u;
    }
    return hash;
}

// Lays the range out anew.
static void arrange(void) {
    if (mmap(base, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != base) _exit(91);
    for (size_t i = 0; i < (size_t)PAGES * PAGE / 8; i++) ((uint64_t *)base)[i] = i % 5 ? i * 0x9e3779b97f4a7c15u : 7;
    for (size_t page = 0; page < PAGES;) {
        size_t count = 1 + any(any(2) ? 3 : 30);
        if (page + count > PAGES) count = PAGES - page;
        enum kind kind = any(3) ? OPEN : (enum kind)any(KINDS);
        char *at = base + page * PAGE;
        if (kind == READ) mprotect(at, count * PAGE, PROT_READ);
        if (kind == NONE) mprotect(at, count * PAGE, PROT_NONE);
        if (kind == HOLE) munmap(at, count * PAGE);
        if (kind == FILED && mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) != at) _exit(92);
        memset(kinds + page, kind, count);
        page += count;
    }
}
static void evict(void) {
    size_t first = any(PAGES), count = 1 + any(PAGES - first);
    for (size_t page = first; page < first + count; page++)
        if (kinds[page] == OPEN || kinds[page] == READ) madvise(base + page * PAGE, PAGE, MADV_PAGEOUT);
}

// A place: anywhere, often across the border of two pages.
static size_t first_page, end_page = BUFFERS - 70;
static size_t place(void) {
    size_t at = (first_page + any(end_page - first_page)) * PAGE;
    switch (any(4)) {
    case 0: return at;
    case 1: return at + PAGE - 1 - any(64);
    case 2: return at + any(PAGE / 8) * 8;
    default: return at + PAGE - 8 * (1 + any(20));
    }
}
// A place that is likely to be good for so many bytes.
static size_t good(size_t len, int write) {
    size_t at = place();
    for (int i = 0; i < 8 && any(8) && !is(at, len, write); i++) at = place();
    return at;
}
static size_t length(void) { return any(3) ? any(200) : any(4) ? any(3 * PAGE) : any(60 * PAGE); }
// Puts an argument somewhere; where it cannot be written it is what is there.
static void *put(const void *value, size_t len) {
    size_t at = good(len, 1) & ~(size_t)15;
    if (is(at, len, 1)) memcpy(base + at, value, len);
    return base + at;
}
// The same for what has addresses in it, each part where no other lies; and the end of it.
static void *put_addresses(int part, const void *value, size_t len) {
    first_page = BUFFERS + (size_t)part * 26, end_page = first_page + 24;
    void *at = put(value, len);
    first_page = 0, end_page = BUFFERS - 70;
    return at;
}
static void wipe(void) {
    for (size_t page = BUFFERS; page < PAGES; page++)
        if (is(page * PAGE, PAGE, 1)) memset(base + page * PAGE, 0x11, PAGE);
}
static char *text(const char *value) { return put(value, strlen(value) + 1); }
static long where(const void *at) { return (long)((const char *)at - base); }
// What a call gave, and what it wrote.
static void gave(const char *name, const void *at, size_t len, long value) {
    int error = value < 0 ? errno : 0;
    tell("%s %ld %zu: %ld %d %llx\n", name, where(at), len, value, error, (unsigned long long)hash_of((size_t)where(at), len));
}
static void told(const char *name, const void *at, long value) { gave(name, at, 0, value); }
// The same where what it writes differs from run to run: that is written over.
static void gave_any(const char *name, void *at, size_t len, long value) {
    int error = value < 0 ? errno : 0;
    for (size_t i = 0; i < len; i++)
        if (is((size_t)where(at) + i, 1, 1)) ((char *)at)[i] = 0x5a;
    tell("%s %ld %zu: %d %d\n", name, where(at), len, value < 0, error);
}
// Of several messages one that fails leaves its error for the next call, or does not.
static void drain(int fd) {
    static char rest[1 << 16];
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {}
}
static void empty(int fd) {
    static char rest[1 << 16];
    int n = 0;
    while (ioctl(fd, FIONREAD, &n) == 0 && n > 0) n = (int)read(fd, rest, sizeof rest);
}

// Entries lie at multiples of their size, so that of several lists of one entry two are the same, or apart.
static struct iovec *pieces(int n, size_t *bytes) {
    struct iovec v[4];
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        size_t len = any(5) ? any(300) : any(3 * PAGE);
        v[i] = (struct iovec){base + good(len, 1), len};
        *bytes += len;
    }
    return put_addresses(0, v, (size_t)n * sizeof *v);
}

static void files(void) {
    size_t len = length(), bytes;
    char *at = base + good(len, 1);
    off_t offset = (off_t)any(70 * PAGE);
    int n = 1 + (int)any(4);
    switch (any(6)) {
    case 0: gave("pread", at, len, pread(file, at, len, offset)); break;
    case 1: gave("pwrite", at, len, pwrite(file, at, len, offset)); break;
    case 2: {
        struct iovec *v = pieces(n, &bytes);
        gave("preadv", at, 1, preadv(file, v, n, offset));
        break;
    }
    case 3: {
        struct iovec *v = pieces(n, &bytes);
        gave("pwritev", at, 1, pwritev(file, v, n, offset));
        break;
    }
    case 4:
        lseek(file, offset, SEEK_SET);
        gave("read", at, len, read(file, at, len));
        break;
    default: {
        struct iovec local = {base + good(len, 1), len}, remote = {at, len};
        void *l = put_addresses(0, &local, sizeof local), *r = put_addresses(1, &remote, sizeof remote);
        long done = any(2) ? process_vm_readv(getpid(), l, 1, r, 1, 0) : process_vm_writev(getpid(), l, 1, r, 1, 0);
        tell("process_vm %ld %ld %zu: %ld %d\n", where(local.iov_base), where(at), len, done, done < 0 ? errno : 0);
    }
    }
}

static void pipe_calls(void) {
    size_t len = any(8 * PAGE);
    char *at = base + good(len, 1);
    long done = write(pipes[1], at, len);
    gave("pipe in", at, len, done);
    loff_t offset = (loff_t)any(PAGE), *place = put(&offset, sizeof offset);
    switch (any(4)) {
    case 0: gave("splice", place, 8, splice(pipes[0], NULL, file, place, len ? len : 1, SPLICE_F_NONBLOCK)); break;
    case 1: {
        long twice = tee(pipes[0], other_pipe[1], len ? len : 1, SPLICE_F_NONBLOCK);
        tell("tee: %ld\n", twice);
        if (twice > 0) gave("pipe out", at, len, read(other_pipe[0], at, len));
        break;
    }
    case 2: {
        struct iovec v = {at, len}, *put_at = put_addresses(0, &v, sizeof v);
        int n = 0;
        ioctl(pipes[0], FIONREAD, &n);
        if (n) gave("readv", at, len, readv(pipes[0], put_at, 1));
        break;
    }
    default: {
        char *to = base + good(len, 1);
        if (done > 0) gave("pipe out", to, len, read(pipes[0], to, len));
    }
    }
    empty(pipes[0]);
    empty(other_pipe[0]);
}

static void messages(void) {
    int *pair = any(3) == 0 ? stream : any(2) ? dgram : packet, n = 1 + (int)any(4);
    size_t bytes, control_len = CMSG_SPACE(sizeof(int));
    struct iovec *v = pieces(n, &bytes);
    struct msghdr head = {.msg_iov = v, .msg_iovlen = (size_t)n};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    if (!any(3)) {
        struct cmsghdr *c = (struct cmsghdr *)control;
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), &file, sizeof file);
        head.msg_control = put(control, sizeof control);
        head.msg_controllen = control_len;
    }
    struct msghdr *at = put_addresses(1, &head, sizeof head);
    long done = sendmsg(pair[0], at, MSG_DONTWAIT | MSG_NOSIGNAL);
    tell("sendmsg %d %zu: %ld %d\n", n, bytes, done, done < 0 ? errno : 0);
    for (int i = 0; i < 2; i++) {
        n = 1 + (int)any(4);
        v = pieces(n, &bytes);
        head = (struct msghdr){.msg_iov = v, .msg_iovlen = (size_t)n};
        if (any(2)) head.msg_control = base + (good(control_len, 1) & ~(size_t)7), head.msg_controllen = control_len;
        at = put_addresses(1, &head, sizeof head);
        struct iovec seen[4];
        int known = is((size_t)where(v), (size_t)n * sizeof *v, 0);
        if (known) memcpy(seen, v, (size_t)n * sizeof *v);
        done = recvmsg(pair[1], at, MSG_DONTWAIT | (i ? 0 : any(2) ? MSG_PEEK : MSG_TRUNC));
        int error = done < 0 ? errno : 0;
        uint64_t hash = 0;
        if (known && done > 0)
            for (int j = 0; j < n; j++)
                if (where(seen[j].iov_base) >= 0 && where(seen[j].iov_base) < PAGES * PAGE && seen[j].iov_len < 4 * PAGE)
                    hash = hash * 31 + hash_of((size_t)where(seen[j].iov_base), seen[j].iov_len);
        int flags = done >= 0 && is((size_t)where(at), sizeof *at, 0) ? at->msg_flags : 0;
        tell("recvmsg %d %zu: %ld %d %x %llx\n", n, bytes, done, error, flags, (unsigned long long)hash);
        if (done >= 0 && is((size_t)where(at), sizeof *at, 0) && at->msg_control && at->msg_controllen >= CMSG_LEN(sizeof(int)) &&
            is((size_t)where(at->msg_control), control_len, 1)) {
            struct cmsghdr *c = at->msg_control;
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
                int got;
                memcpy(&got, CMSG_DATA(c), sizeof got);
                tell("a descriptor: %d\n", close(got));
                memset(CMSG_DATA(c), 0, sizeof got);
            }
        }
    }
    // Those that came where they cannot be read are closed by their numbers.
    for (int fd = 20; fd < 100; fd++) close(fd);
    drain(stream[1]), drain(dgram[1]), drain(packet[1]);
}

static void several(void) {
    struct mmsghdr list[3] = {0};
    size_t bytes;
    for (int i = 0; i < 3; i++) {
        list[i].msg_hdr.msg_iov = pieces(1, &bytes);
        list[i].msg_hdr.msg_iovlen = 1;
    }
    struct mmsghdr *at = put_addresses(1, list, sizeof list);
    long done = sendmmsg(dgram[0], at, 3, MSG_DONTWAIT);
    tell("sendmmsg: %ld %d\n", done, done < 0 ? errno : 0);
    for (int i = 0; i < 3; i++) list[i].msg_hdr.msg_iov = pieces(1, &bytes);
    at = put_addresses(1, list, sizeof list);
    done = recvmmsg(dgram[1], at, 3, MSG_DONTWAIT, NULL);
    int known = is((size_t)where(at), sizeof list, 0);
    tell("recvmmsg: %ld %d %u\n", done, done < 0 ? errno : 0, known && done > 0 ? at[0].msg_len : 0);
    drain(dgram[1]);
}

static void paths(void) {
    static const char *names[] = {"one", "two", "directory", "directory/three", "none/four", "link", ""};
    const char *name = names[any(7)], *second = names[any(7)];
    char *path = text(name), *to = text(second);
    size_t len = any(4) ? sizeof(struct stat) : length();
    char *at = base + good(len, 1);
    long value;
    switch (any(12)) {
    case 0: told("mkdir", path, mkdir(path, 0755)); break;
    case 1: told("unlink", path, unlink(path)); break;
    case 2: told("rename", path, rename(path, to)); break;
    case 3: told("symlink", path, symlink(path, to)); break;
    case 4: gave("readlink", at, len, readlink(path, at, len)); break;
    case 5: {
        int fd = open(path, O_RDWR | O_CREAT, 0644);
        tell("open %ld: %d %d\n", where(path), fd >= 0, fd < 0 ? errno : 0);
        if (fd >= 0) close(fd);
        break;
    }
    case 6: gave_any("stat", at, sizeof(struct stat), stat(path, (struct stat *)at)); break;
    case 7: told("access", path, access(path, R_OK)); break;
    case 8: told("chmod", path, chmod(path, 0700)); break;
    case 9: {
        int fd = open("directory", O_RDONLY | O_DIRECTORY);
        if (fd < 0) break;
        value = syscall(SYS_getdents64, fd, at, len);
        gave_any("getdents", at, len, value);
        close(fd);
        break;
    }
    case 10: {
        char *where_at = getcwd(at, len);
        gave_any("getcwd", at, len, where_at ? 0 : -1);
        break;
    }
    default: {
        struct statx *x = (struct statx *)(base + (good(sizeof *x, 1) & ~(size_t)7));
        gave_any("statx", x, sizeof *x, statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, x));
    }
    }
}

static void waits(void) {
    switch (any(6)) {
    case 0: {
        struct pollfd fds[3] = {{pipes[0], POLLIN, 9}, {pipes[1], POLLOUT, 9}, {-1, POLLIN, 9}}, *at = put(fds, sizeof fds);
        gave("poll", at, sizeof fds, poll(at, 3, 0));
        break;
    }
    case 1: {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pipes[1], &set);
        struct timeval none = {0, 0};
        void *at = put(&set, sizeof set);
        gave("select", at, sizeof set, select(40, NULL, at, NULL, &none));
        break;
    }
    case 2: {
        struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 77}, *at = put(&event, sizeof event);
        gave("epoll_ctl", at, sizeof event, epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[1], at));
        struct epoll_event *list = (struct epoll_event *)(base + (good(4 * sizeof *list, 1) & ~(size_t)7));
        gave("epoll_wait", list, sizeof *list, epoll_wait(epoll, list, 4, 0));
        event = (struct epoll_event){.events = EPOLLOUT, .data.u64 = 77};
        epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[1], &event);
        break;
    }
    case 3: {
        struct timespec time = {0, any(2) ? 1 : 2000000000}, *at = put(&time, sizeof time);
        if (!is((size_t)where(at), sizeof time, 1)) break;
        gave("nanosleep", at, sizeof time, nanosleep(at, NULL));
        break;
    }
    case 4: {
        uint32_t word = 5;
        uint32_t *at = put(&word, sizeof word);
        struct timespec soon = {0, 1000}, *time = put(&soon, sizeof soon);
        if (is((size_t)where(time), sizeof soon, 1)) gave("futex", at, sizeof word, syscall(SYS_futex, at, any(2) ? FUTEX_WAIT : FUTEX_WAKE, 6, time, NULL, 0));
        break;
    }
    default: {
        struct itimerspec spec = {{0, 0}, {1000, 0}}, *at = put(&spec, sizeof spec);
        gave("timerfd_settime", at, sizeof spec, timerfd_settime(timer, 0, at, NULL));
        struct itimerspec *now = (struct itimerspec *)(base + (good(sizeof *now, 1) & ~(size_t)7));
        gave_any("timerfd_gettime", now, sizeof *now, timerfd_gettime(timer, now));
    }
    }
}

static void questions(void) {
    size_t at = good(512, 1) & ~(size_t)7;
    void *to = base + at;
    socklen_t len = 64, *len_at = put(&len, sizeof len);
    switch (any(18)) {
    case 0: gave("uname", to, sizeof(struct utsname), uname(to)); break;
    case 1: gave_any("sysinfo", to, 112, syscall(SYS_sysinfo, to)); break;
    case 2: gave("getrlimit", to, sizeof(struct rlimit), getrlimit(RLIMIT_CORE, to)); break;
    case 3: gave("getresuid", to, 4, syscall(SYS_getresuid, to, (char *)to + 4, (char *)to + 8)); break;
    case 4: gave_any("getrusage", to, sizeof(struct rusage), getrusage(RUSAGE_SELF, to)); break;
    case 5: gave_any("clock_gettime", to, sizeof(struct timespec), syscall(SYS_clock_gettime, CLOCK_MONOTONIC, to)); break;
    case 6: gave("sched_getaffinity", to, 128, syscall(SYS_sched_getaffinity, 0, 128, to)); break;
    case 7: gave("get_name", to, 16, prctl(PR_GET_NAME, to)); break;
    case 8: gave("getsockopt", to, 4, getsockopt(stream[0], SOL_SOCKET, SO_TYPE, to, len_at)); break;
    case 9: gave("getsockname", to, 2, getsockname(stream[0], to, len_at)); break;
    case 10: {
        int yes = 1, *value = put(&yes, sizeof yes);
        gave("setsockopt", value, sizeof yes, setsockopt(stream[0], SOL_SOCKET, SO_KEEPALIVE, value, sizeof yes));
        break;
    }
    case 11: {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10}, *put_at = put(&lock, sizeof lock);
        gave("flock", put_at, sizeof lock, fcntl(file, F_GETLK, put_at));
        break;
    }
    case 12: gave_any("fstatfs", to, sizeof(struct statfs), fstatfs(file, to)); break;
    case 13: {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        void *from = put(&set, sizeof(uint64_t));
        gave("sigprocmask", to, 8, syscall(SYS_rt_sigprocmask, SIG_BLOCK, from, to, 8));
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        break;
    }
    case 14: gave("sigpending", to, 8, syscall(SYS_rt_sigpending, to, 8)); break;
    case 15: {
        struct sembuf op = {0, any(2) ? 1 : -1, IPC_NOWAIT}, *put_at = put(&op, sizeof op);
        // Of no set of semaphores, which is seen when the operation was read.
        gave("semop", put_at, sizeof op, semop(-1, put_at, 1));
        break;
    }
    case 16: {
        size_t bytes = length();
        gave_any("getrandom", to, bytes, syscall(SYS_getrandom, to, bytes, 0));
        break;
    }
    default: gave("FIONREAD", to, 4, ioctl(pipes[0], FIONREAD, to));
    }
}

int main(int argc, char **argv) {
    seed(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    long steps = argc > 2 ? atol(argv[2]) : 1000;
    signal(SIGPIPE, SIG_IGN);
    base = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    epoll = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, 0);
    if (base == MAP_FAILED || file < 0 || epoll < 0 || timer < 0 || pipe(pipes) || pipe(other_pipe) ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, stream) || socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packet))
        return 93;
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 77};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[1], &event);
    static char content[PAGE];
    for (int i = 0; i < 64; i++) {
        memset(content, i + 1, sizeof content);
        if (write(file, content, sizeof content) != PAGE) return 94;
    }
    for (long step = 0; step < steps; step++) {
        if (step % 150 == 0) arrange();
        if (!any(3)) evict();
        tell("%ld ", step);
        switch (any(10)) {
        case 0: case 1: files(); break;
        case 2: pipe_calls(); break;
        case 3: case 4: messages(); break;
        case 5: several(); break;
        case 6: case 7: paths(); break;
        case 8: waits(); break;
        default: questions(); break;
        }
        wipe();
        if (step % 25 == 24) tell("all: %llx\n", (unsigned long long)all());
    }
    flush();
    return 0;
}
