/* A library that a program is linked to: its constructor makes a thread, which goes on as long as the program; and it has functions of its own
 * by names that the C library has for others, with arguments of other kinds. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct big {
    long values[6];
};
long own_send(long, long, long, long, long, long, long, long) __asm__("send");
double own_access(double, double) __asm__("access");
struct big own_stat(struct big, int) __asm__("stat");

long own_send(long a, long b, long c, long d, long e, long f, long g, long h) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
double own_access(double x, double y) { return x / y; }
struct big own_stat(struct big given, int more) {
    for (int i = 0; i < 6; i++) given.values[i] += more;
    return given;
}
long library_own(void) {
    struct big given = {{1, 2, 3, 4, 5, 6}};
    given = own_stat(given, 10);
    return own_send(1, 2, 3, 4, 5, 6, 7, 8) * 1000000 + (long)(own_access(10, 4) * 10000) + given.values[0] + given.values[5];
}

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char *work;
static size_t work_bytes;
static int ends[2], result = -1;

/* Reverses each byte, and has a pipe read into memory that went out meanwhile. */
static void *works(void *nothing) {
    size_t early_bytes = 1 << 20;
    char *early = mmap(NULL, early_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (early == MAP_FAILED) return nothing;
    memset(early, 'e', early_bytes);
    pthread_mutex_lock(&lock);
    while (!work) pthread_cond_wait(&changed, &lock);
    for (size_t i = 0; i < work_bytes; i++) work[i] = ~work[i];
    int failed = 0;
    for (size_t at = 0; at < work_bytes && !failed; at += work_bytes / 64)
        failed = write(ends[1], work + at, 4096) != 4096 || read(ends[0], work + at, 4096) != 4096;
    for (size_t i = 0; i < early_bytes; i++) failed |= early[i] != 'e';
    result = failed;
    pthread_mutex_unlock(&lock);
    return NULL;
}
int library_reverses(char *at, size_t bytes) {
    pthread_mutex_lock(&lock);
    work = at, work_bytes = bytes;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return result;
}
__attribute__((constructor)) static void begin(void) {
    if (pipe(ends) || pthread_create(&thread, NULL, works, NULL)) abort();
}
