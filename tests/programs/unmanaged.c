/* unmanaged KIND MIB MS [PROGRAM ARGS...]: fills memory of a kind, a MiB at a time, stays for so many milliseconds, and looks at it
 * again. Kinds: bss (which can be managed, too), code, pages (private ones of a file), stack, threads, reserved (parts of
 * what is larger than all managed addresses), and heap, which can be managed; heap starts a program
 * before it stays, and waits for its end, without a touch of its memory. With 0 milliseconds all goes as fast as it can. */
#include "../calls/common.h"
#include <pthread.h>
#include <spawn.h>

#define STACK_MIB 4
static char zeros[96UL << 20];
static size_t mib, stay_ms;

#ifdef OWN_MEMCPY
/* It counts, in the .bss. What calls it takes it for the C library's. */
void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    volatile char *out = to;
    const volatile char *in = from;
    ++*(volatile size_t *)(zeros + sizeof zeros / 2);
    for (size_t i = 0; i < n; i++) out[i] = in[i];
    return to;
}
#endif
static char path[] = "/tmp/outswap-pages-XXXXXX";

static void put(char *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += MIB) {
        noise(p + at, MIB, at);
        if (stay_ms) sleep_ms(20);
    }
}

static void look(char *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += MIB) check_noise(p + at, MIB, at);
}

static void use(char *p, size_t bytes) {
    put(p, bytes);
    sleep_ms(stay_ms);
    look(p, bytes);
}

static __attribute__((noinline)) void *on_stack(void *bytes) {
    char room[(size_t)bytes];
    use(room, sizeof room);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc > 3);
#ifdef OWN_CALL
    long pid;
    __asm__ volatile("syscall" : "=a"(pid) : "a"(SYS_getpid) : "rcx", "r11", "memory");
    EQ(pid, getpid());
#endif
    const char *kind = argv[1];
    mib = atol(argv[2]), stay_ms = atol(argv[3]);
    size_t bytes = mib * MIB;
    if (!strcmp(kind, "bss")) {
        CHECK(bytes <= sizeof zeros);
        use(zeros, bytes);
    } else if (!strcmp(kind, "code")) {
        /* In pieces near this program's own, as compilers do. */
        char *pieces[256], *hint = (char *)((uintptr_t)main & -MIB);
        CHECK(mib <= 256);
        for (size_t i = 0; i < mib; i++) {
            hint += 2 * MIB;
            pieces[i] = mmap(hint, MIB, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(pieces[i] != MAP_FAILED);
            put(pieces[i], MIB);
        }
        sleep_ms(stay_ms);
        for (size_t i = 0; i < mib; i++) look(pieces[i], MIB);
    } else if (!strcmp(kind, "pages")) {
        int fd = mkstemp(path);
        CHECK(fd >= 0 && ftruncate(fd, bytes) == 0);
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        CHECK(p != MAP_FAILED);
        use(p, bytes);
        CHECK(unlink(path) == 0);
    } else if (!strcmp(kind, "stack")) {
        struct rlimit limit = {bytes + 8 * MIB, bytes + 8 * MIB};
        CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
        on_stack((void *)bytes);
    } else if (!strcmp(kind, "threads")) {
        pthread_t threads[64];
        size_t n = mib / STACK_MIB;
        CHECK(n <= 64);
        for (size_t i = 0; i < n; i++) CHECK(pthread_create(&threads[i], NULL, on_stack, (void *)(STACK_MIB * MIB)) == 0);
        for (size_t i = 0; i < n; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    } else if (!strcmp(kind, "reserved")) {
        const size_t half = bytes / 2, each = 16UL << 40;
        char *parts[2];
        for (int i = 0; i < 2; i++) {
            char *p = mmap(NULL, each, i ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            CHECK(p != MAP_FAILED);
            parts[i] = p + each / 2;
            if (i == 0) CHECK(mprotect(parts[i], half, PROT_READ | PROT_WRITE) == 0);
            put(parts[i], half);
        }
        sleep_ms(stay_ms);
        look(parts[0], half), look(parts[1], half);
    } else {
        CHECK(!strcmp(kind, "heap"));
        char *p = fresh(bytes / PAGE);
        put(p, bytes);
        if (argc > 4) {
            extern char **environ;
            pid_t child;
            int status;
            CHECK(posix_spawn(&child, argv[4], NULL, NULL, argv + 4, environ) == 0);
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        }
        sleep_ms(stay_ms);
        look(p, bytes);
    }
    puts("ok");
    return 0;
}
