// What programs of random calls share: numbers that follow from a seed, and lines that tell what was done, for each thread.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

enum { LINE = 512 };

static __thread uint64_t state;
static __thread char out[1 << 16];
static __thread size_t out_len;
static __thread int out_to = 1;

static void flush(void) {
    for (size_t done = 0; done < out_len;) {
        ssize_t n = write(out_to, out + done, out_len - done);
        if (n <= 0) _exit(90);
        done += (size_t)n;
    }
    out_len = 0;
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (out_len > sizeof out - LINE) flush();
    out_len += (size_t)vsnprintf(out + out_len, LINE, format, list);
    va_end(list);
}

static void seed(uint64_t number) { state = number * 0x9e3779b97f4a7c15u | 1; }

static uint64_t any(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}
