// pthread_cancel of C++ threads that are blocked in calls on evicted memory: destructors run, catch (...) sees it.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void check(bool fine, const char *what, int line) {
    if (fine) return;
    fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", __FILE__, line, what, errno);
    _exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static const size_t page = 4096, pages = 64;
static char *area;
static int ends[2];
static volatile int destroyed, caught, tid;
static std::mutex lock;

namespace {
struct Guard {
    ~Guard() { destroyed = destroyed + (area[40 * page] == 40); }
};
void evict() { madvise(area, pages * page, MADV_PAGEOUT); }

// Never in line, so that there are frames to unwind.
__attribute__((noinline)) void waits(int way) {
    Guard guard;
    iovec two[2] = {{area + 5 * page, 100}, {area + 9 * page, 5000}};
    msghdr message = {};
    message.msg_iov = two, message.msg_iovlen = 2;
    pollfd *p = reinterpret_cast<pollfd *>(area + 30 * page);
    *p = {ends[0], POLLIN, 0};
    evict();
    tid = gettid();
    ssize_t r = 0;
    switch (way) {
    case 0:
        r = read(ends[0], area + 3 * page, 6000);
        break;
    case 1:
        r = recv(ends[0], area + 3 * page, 6000, 0);
        break;
    case 2:
        r = readv(ends[0], two, 2);
        break;
    case 3:
        r = recvmsg(ends[0], &message, 0);
        break;
    default:
        r = poll(p, 1, -1);
    }
    CHECK(r == -2);
}
void *thread(void *arg) {
    std::lock_guard<std::mutex> held(lock);
    Guard outer;
    try {
        waits(*static_cast<int *>(arg));
    } catch (abi::__forced_unwind &) {
        caught = caught + 1;
        throw;
    }
    return nullptr;
}
void until_asleep() {
    char path[64], text[512];
    for (int asleep = 0; asleep < 3;) {
        usleep(1000);
        if (tid == 0) continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        asleep = strstr(text, ") S ") ? asleep + 1 : 0;
    }
}
} // namespace

int main() {
    area = static_cast<char *>(mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(area != MAP_FAILED);
    for (size_t i = 0; i < pages; i++) area[i * page] = static_cast<char>(i);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    for (int round = 0; round < 10; round++)
        for (int way = 0; way < 5; way++) {
            pthread_t t;
            void *result;
            destroyed = caught = tid = 0;
            CHECK(pthread_create(&t, nullptr, thread, &way) == 0);
            until_asleep();
            CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0);
            CHECK(result == PTHREAD_CANCELED);
            CHECK(destroyed == 2 && caught == 1);
            CHECK(lock.try_lock());
            lock.unlock();
        }
    puts("ok");
    return 0;
}
