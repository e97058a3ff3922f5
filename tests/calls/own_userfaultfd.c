/* A userfaultfd of the program's own, on memory of its own: what is missing is told to it, and what it puts there is found, by the
 * program and by calls. */
#include "common.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

enum { PAGES = 256 };
#define USER_MODE_ONLY 1

static char *served, *source, *area;
static int fd;
static volatile size_t asked[PAGES], count;

/* Serves what is missing with a pattern, out of memory that was evicted. */
static void *serve(void *arg) {
    char *pages = arg;
    for (;;) {
        struct uffd_msg message;
        ssize_t n = read(fd, &message, sizeof message);
        if (n != sizeof message) return NULL;
        EQ(message.event, UFFD_EVENT_PAGEFAULT);
        char *at = (char *)(message.arg.pagefault.address & -PAGE);
        if (at == area) return arg;
        size_t i = (size_t)(at - served) / PAGE;
        CHECK(i < PAGES);
        __atomic_fetch_add(&asked[i], 1, __ATOMIC_SEQ_CST), __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
        evict_some(pages + i * PAGE, PAGE);
        struct uffdio_copy copy = {.dst = (uintptr_t)at, .src = (uintptr_t)(pages + i * PAGE), .len = PAGE};
        if (ioctl(fd, UFFDIO_COPY, &copy)) CHECK(errno == EEXIST);
    }
}
static void *toucher(void *arg) {
    EQ(*(volatile char *)arg, 0);
    return arg;
}
static int opened(int flags) {
    int got = (int)syscall(SYS_userfaultfd, flags | O_CLOEXEC | USER_MODE_ONLY);
    if (got < 0) {
        CHECK(errno == EPERM || errno == ENOSYS);
        puts("no userfaultfd");
        exit(0);
    }
    return got;
}
static void api(int at, unsigned long features) {
    struct uffdio_api a = {.api = UFFD_API, .features = features}, *p = arg(&a, sizeof a);
    OK(ioctl(at, UFFDIO_API, p)), EQ(p->api, UFFD_API);
}
static int reg(int at, void *start, size_t n, int mode) {
    struct uffdio_register r = {.range = {(uintptr_t)start, n}, .mode = mode}, *p = arg(&r, sizeof r);
    int result = ioctl(at, UFFDIO_REGISTER, p), error = errno;
    if (result == 0) CHECK(p->ioctls & (1UL << _UFFDIO_COPY));
    errno = error;
    return result;
}
static int unreg(int at, void *start, size_t n) {
    struct uffdio_range r = {(uintptr_t)start, n};
    return ioctl(at, UFFDIO_UNREGISTER, &r);
}
static int is_there(char *p) {
    unsigned char in;
    OK(mincore(p, PAGE, &in));
    return in & 1;
}
/* Features that have calls wait for the program are refused, as by a kernel that has not got them. */
static void events(void) {
    for (int bit = 0; bit < 7; bit++) {
        if (!(0x4e >> bit & 1)) continue;
        struct uffdio_api a = {.api = UFFD_API, .features = 1UL << bit}, *p = arg(&a, sizeof a);
        int own = opened(O_NONBLOCK);
        int refused = ioctl(own, UFFDIO_API, p);
        if (getenv("OUTSWAP_E2E_MANAGED")) {
            EQ(refused, -1), EQ(errno, EINVAL), EQ(p->api, 0), EQ(p->features, 0);
            /* It can be asked again, for less. */
            api(own, 0);
        }
        OK(close(own));
    }
}
/* Of memory that holds something, what is there stays, and the rest is missing. */
static void partly_there(void) {
    char *p = fresh(64);
    for (int i = 0; i < 64; i++)
        if (i % 16 < 8) fill(p + i * PAGE, PAGE, i);
    memset(p + 16 * PAGE, 0, 2 * PAGE);
    OK(madvise(p + 8 * PAGE, 8 * PAGE, MADV_DONTNEED)), OK(madvise(p + 24 * PAGE, 8 * PAGE, MADV_DONTNEED));
    OK(madvise(p + 40 * PAGE, 8 * PAGE, MADV_DONTNEED)), OK(madvise(p + 56 * PAGE, 8 * PAGE, MADV_DONTNEED));
    evict(p, 32 * PAGE), OK(mprotect(p + 4 * PAGE, PAGE, PROT_READ));
    int own = opened(O_NONBLOCK);
    api(own, 0);
    OK(reg(own, p, 48 * PAGE, UFFDIO_REGISTER_MODE_MISSING));
    for (int i = 0; i < 48; i++) {
        if (i % 16 >= 8) {
            EQ(is_there(p + i * PAGE), 0);
            struct uffdio_zeropage z = {.range = {(uintptr_t)(p + i * PAGE), PAGE}};
            OK(ioctl(own, UFFDIO_ZEROPAGE, &z)), EQ(z.zeropage, PAGE);
            check_zero(p + i * PAGE, PAGE);
        } else if (i == 16 || i == 17)
            check_zero(p + i * PAGE, PAGE);
        else
            check(p + i * PAGE, PAGE, i);
    }
    /* Nothing was asked for. */
    struct uffd_msg message;
    expect_errno(read(own, &message, sizeof message), EAGAIN);
    /* What was not registered goes on as it was. */
    evict(p + 48 * PAGE, 16 * PAGE), check(p + 48 * PAGE, PAGE, 48), check_zero(p + 60 * PAGE, PAGE);
    OK(unreg(own, p, 48 * PAGE)), OK(madvise(p, 48 * PAGE, MADV_DONTNEED)), check_zero(p, 48 * PAGE);
    OK(mprotect(p, 64 * PAGE, PROT_READ | PROT_WRITE)), fill(p, 64 * PAGE, 3), evict_some(p, 64 * PAGE), check(p, 64 * PAGE, 3);
    OK(munmap(p, 64 * PAGE)), OK(close(own));
}
static void errors(void) {
    char *p = fresh(8);
    int own = opened(O_NONBLOCK), other = opened(O_NONBLOCK);
    expect_errno(reg(own, p, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    api(own, 0), api(other, 0);
    expect_errno(reg(own, p + 1, PAGE, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    expect_errno(reg(own, p, 0, UFFDIO_REGISTER_MODE_MISSING), EINVAL), expect_errno(reg(own, p, 4 * PAGE, 0), EINVAL);
    expect_errno(reg(own, p, PAGE + 1, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    EFAULT_IN(q, ioctl(own, UFFDIO_REGISTER, q));
    expect_errno(reg(minus_one, p, PAGE, UFFDIO_REGISTER_MODE_MISSING), EBADF);
    OK(reg(own, p, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING)), OK(reg(own, p, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING));
    expect_errno(reg(other, p + PAGE, PAGE, UFFDIO_REGISTER_MODE_MISSING), EBUSY);
    OK(reg(other, p + 4 * PAGE, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING));
    OK(close(own)), OK(reg(other, p, 8 * PAGE, UFFDIO_REGISTER_MODE_MISSING)), OK(close(other));
    fill(p, 8 * PAGE, 1), check(p, 8 * PAGE, 1), OK(munmap(p, 8 * PAGE));
}
/* In the midst of a heap: around it all is as it was. */
static void amid_others(void) {
    char *p = fresh(96);
    fill(p, 96 * PAGE, 7), evict(p, 96 * PAGE);
    int own = opened(O_NONBLOCK);
    api(own, 0), OK(reg(own, p + 32 * PAGE, 32 * PAGE, UFFDIO_REGISTER_MODE_MISSING));
    evict(p, 32 * PAGE), evict(p + 64 * PAGE, 32 * PAGE), check(p, 96 * PAGE, 7);
    pid_t pid = CHILD({
        /* A child does not inherit the registration, but the content. */
        check(p, 96 * PAGE, 7), fill(p, 96 * PAGE, 8), evict_some(p, 96 * PAGE), check(p, 96 * PAGE, 8);
    });
    expect_exit(pid, 0), check(p, 96 * PAGE, 7);
    OK(mremap(p + 32 * PAGE, 32 * PAGE, 16 * PAGE, 0) == p + 32 * PAGE ? 0 : 1), check(p, 48 * PAGE, 7);
    OK(munmap(p + 32 * PAGE, 32 * PAGE)), check(p, 32 * PAGE, 7), check_from(p + 64 * PAGE, 32 * PAGE, 7, 64 * PAGE);
    char *again = mmap(p + 32 * PAGE, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == p + 32 * PAGE), check_zero(again, 32 * PAGE), fill(again, 32 * PAGE, 9);
    evict(p, 96 * PAGE), check(again, 32 * PAGE, 9), check(p, 32 * PAGE, 7), OK(close(own)), OK(munmap(p, 96 * PAGE));
}
/* What children are not to have they do not have because it is registered. */
static void secrets(void) {
    char *p = fresh(48);
    fill(p, 48 * PAGE, 4), OK(madvise(p + 16 * PAGE, 16 * PAGE, MADV_WIPEONFORK)), evict(p, 48 * PAGE);
    int own = opened(O_NONBLOCK);
    api(own, 0), OK(reg(own, p, 48 * PAGE, UFFDIO_REGISTER_MODE_MISSING));
    expect_exit(CHILD({ check(p, 16 * PAGE, 4), check_zero(p + 16 * PAGE, 16 * PAGE); }), 0);
    check(p, 48 * PAGE, 4), OK(close(own)), OK(munmap(p, 48 * PAGE));
}
/* Registered while another thread uses it. */
static volatile int stop;
static void *reader(void *arg) {
    while (!stop) check(arg, 256 * PAGE, 2);
    return NULL;
}
static void in_use(void) {
    for (int round = 0; round < 8; round++) {
        char *p = fresh(256);
        fill(p, 256 * PAGE, 2), evict(p, 256 * PAGE);
        pthread_t thread;
        stop = 0;
        OK(pthread_create(&thread, NULL, reader, p));
        int own = opened(O_NONBLOCK);
        api(own, 0), usleep(100 * round), OK(reg(own, p, 256 * PAGE, UFFDIO_REGISTER_MODE_MISSING));
        stop = 1, OK(pthread_join(thread, NULL)), check(p, 256 * PAGE, 2), OK(close(own)), OK(munmap(p, 256 * PAGE));
    }
}
int main(void) {
    tmpdir();
    area = fresh(1), source = fresh(PAGES), served = fresh(PAGES);
    fill(source, PAGES * PAGE, 5), evict(source, PAGES * PAGE);
    fd = opened(0), api(fd, 0);
    OK(reg(fd, served, PAGES * PAGE, UFFDIO_REGISTER_MODE_MISSING)), OK(reg(fd, area, PAGE, UFFDIO_REGISTER_MODE_MISSING));
    pthread_t t;
    OK(pthread_create(&t, NULL, serve, source));
    check_from(served + 7 * PAGE, PAGE, 5, 7 * PAGE), EQ(count, 1);
    pressure(36);
    check(served, PAGES * PAGE, 5), EQ(count, PAGES);
    for (int i = 0; i < PAGES; i++) EQ(asked[i], 1);
    /* Dropped, it is missing again; a call finds it too, where the kernel may ask for it. */
    OK(madvise(served, 8 * PAGE, MADV_DONTNEED)), check(served, 8 * PAGE, 5), EQ(count, PAGES + 8);
    fill(served, PAGES * PAGE, 6), pressure(36), check(served, PAGES * PAGE, 6), EQ(count, PAGES + 8);
    int file = open("file", O_RDWR | O_CREAT, 0600);
    EQ(write(file, served, 64 * PAGE), 64 * PAGE), EQ(pread(file, served + 64 * PAGE, 64 * PAGE, 0), 64 * PAGE);
    check(served + 64 * PAGE, 64 * PAGE, 6), check(source, PAGES * PAGE, 5);
    OK(unreg(fd, area, PAGE)), OK(reg(fd, area, PAGE, UFFDIO_REGISTER_MODE_MISSING));
    /* A child has none of the registrations. */
    expect_exit(CHILD({ EQ(*(volatile char *)area, 0); }), 0);
    /* Asked for this page, the server ends. */
    pthread_t last;
    OK(pthread_create(&last, NULL, toucher, area)), OK(pthread_join(t, NULL));
    OK(unreg(fd, area, PAGE)), OK(pthread_join(last, NULL)), OK(close(fd));
    events(), errors(), partly_there(), amid_others(), secrets(), in_use();
    puts("ok");
    return 0;
}
