// C++ exceptions and backtraces through signal handlers: thrown from a handler of SIGSEGV and of a signal that was sent,
// also where the handler interrupted a call on evicted memory; a backtrace in a handler names what crashed.
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(bool fine, const char *what, int line) {
    if (fine) return;
    fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", __FILE__, line, what, errno);
    _exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static const size_t page = 4096, pages = 1024;
static char *area;
static volatile int destroyed, traced, frames;
static int ends[2];
static pthread_t interrupted;
static int interrupted_tid;
// Not declared as throwing nothing, so that the compiler expects exceptions from it.
static int (*volatile send_self)(int) = raise;

namespace {
struct Guard {
    ~Guard() { destroyed = destroyed + 1; }
};
void evict() { madvise(area, pages * page, MADV_PAGEOUT); }
} // namespace

extern "C" __attribute__((noinline)) int function_that_crashes(volatile int *p) {
    Guard guard;
    int value = *p;
    return value + 1;
}
extern "C" __attribute__((noinline)) int function_that_is_interrupted(int way) {
    Guard guard;
    char byte = 0;
    iovec two[2] = {{area + 5 * page, 100}, {area + 9 * page, 9000}};
    switch (way) {
    case 0:
        send_self(SIGUSR1);
        break;
    case 1: // Blocked in a call on evicted memory until the signal comes.
        if (read(ends[0], area + 50 * page, 3000) == 0) byte = 1;
        break;
    case 2:
        if (readv(ends[0], two, 2) == 0) byte = 1;
        break;
    default:
        if (recv(ends[0], area + 60 * page, 100, 0) == 0) byte = 1;
        break;
    }
    return byte;
}
static void throws(int number, siginfo_t *, void *) { throw number; }

static void traces(int number, siginfo_t *, void *) {
    void *list[64];
    int n = backtrace(list, 64);
    char **names = backtrace_symbols(list, n);
    const char *want = number == SIGSEGV ? "function_that_crashes" : "function_that_is_interrupted";
    int seen = 0, mainly = 0;
    for (int i = 0; i < n; i++) seen |= strstr(names[i], want) != nullptr, mainly |= strstr(names[i], "start_main") != nullptr;
    free(names);
    traced = traced + (seen != 0);
    frames = mainly;
    throw number;
}
static void install(int number, void (*f)(int, siginfo_t *, void *), int flags) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = f, a.sa_flags = SA_SIGINFO | SA_NODEFER | flags;
    CHECK(sigaction(number, &a, nullptr) == 0);
}
// Sends a signal to a thread that sleeps in a call.
static void *sends(void *arg) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", interrupted_tid);
    for (int asleep = 0; asleep < 3;) {
        usleep(2000);
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        asleep = strstr(text, ") S ") ? asleep + 1 : 0;
    }
    pthread_kill(interrupted, SIGALRM);
    return arg;
}
static void all(bool on_main) {
    for (int round = 0; round < 12; round++) {
        bool trace = round % 2;
        int flags = round % 4 < 2 ? 0 : SA_ONSTACK;
        install(SIGSEGV, trace ? traces : throws, flags);
        install(SIGUSR1, trace ? traces : throws, flags), install(SIGALRM, trace ? traces : throws, flags);
        evict();
        destroyed = traced = 0;
        int caught = 0;
        try {
            function_that_crashes(reinterpret_cast<int *>(8));
        } catch (int number) {
            caught = number;
        }
        CHECK(caught == SIGSEGV), CHECK(destroyed == 1), CHECK(traced == trace), CHECK(!trace || !on_main || frames);
        if (!on_main) continue;
        for (int way = 0; way < 4; way++) {
            evict();
            destroyed = traced = caught = 0;
            pthread_t t;
            if (way) CHECK(pthread_create(&t, nullptr, sends, nullptr) == 0);
            try {
                function_that_is_interrupted(way);
            } catch (int number) {
                caught = number;
            }
            if (way) CHECK(pthread_join(t, nullptr) == 0);
            CHECK(caught == (way ? SIGALRM : SIGUSR1)), CHECK(destroyed == 1), CHECK(traced == trace);
        }
        for (size_t i = 0; i < pages; i++) CHECK(area[i * page] == static_cast<char>(i) || (i >= 5 && i < 70));
    }
}
static void *in_thread(void *arg) {
    all(false);
    return arg;
}
int main() {
    area = static_cast<char *>(mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(area != MAP_FAILED);
    for (size_t i = 0; i < pages; i++) memset(area + i * page, static_cast<int>(i), page);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    interrupted = pthread_self(), interrupted_tid = getpid();
    // Loads what the unwinder needs outside of any handler.
    void *first[4];
    backtrace(first, 4);
    try {
        throw 1;
    } catch (int) {
    }
    all(true);
    pthread_t t;
    CHECK(pthread_create(&t, nullptr, in_thread, nullptr) == 0 && pthread_join(t, nullptr) == 0);
    // What nothing catches ends the program by abort.
    pid_t pid = fork();
    if (pid == 0) {
        close(2);
        install(SIGSEGV, throws, 0);
        function_that_crashes(reinterpret_cast<int *>(8));
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    puts("ok");
    return 0;
}
