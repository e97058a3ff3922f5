/* Calls that most programs never make, and of which many are refused, by rights or by the kernel's age: each is made twice, on memory
 * of the program itself and on evicted memory, and has to answer alike. */
#ifndef ALIKE_H
#define ALIKE_H
#include "common.h"

/* 0: in the program's own data, which nothing manages; 1: in memory that was evicted. */
static int in_evicted;
static char own_data[1 << 20] __attribute__((aligned(4096)));
static size_t own_used;

/* A copy of n bytes, where the turn says. */
PIECE void *in(const void *from, size_t n) {
    if (in_evicted) return arg(from, n);
    own_used = (own_used + 15) & ~15UL;
    CHECK(own_used + n <= sizeof own_data);
    void *p = own_data + own_used;
    own_used += n;
    memcpy(p, from, n);
    return p;
}
PIECE void *zeros(size_t n) {
    static const char none[1 << 16];
    CHECK(n <= sizeof none);
    return in(none, n);
}
PIECE char *text(const char *s) { return in(s, strlen(s) + 1); }
#define THE(type, ...) ((type *)in(&(type){__VA_ARGS__}, sizeof(type)))

/* Both answer alike; of calls that make descriptors or count, only whether they do. Gives what the second answered. */
#define ALIKE_IF(same, call)                                                                                         \
    ({                                                                                                               \
        long answers_[2];                                                                                            \
        int errors_[2];                                                                                              \
        for (in_evicted = 0; in_evicted < 2; in_evicted++) {                                                         \
            own_used = 0, errno = 0;                                                                                 \
            answers_[in_evicted] = (long)(call);                                                                     \
            errors_[in_evicted] = answers_[in_evicted] == -1 ? errno : 0;                                            \
        }                                                                                                            \
        long a_ = answers_[0], b_ = answers_[1];                                                                     \
        if (!(same) || errors_[0] != errors_[1])                                                                     \
            die("%s:%d: %s gave %ld, errno %d; on evicted memory %ld, errno %d", __FILE__, __LINE__, #call, a_,      \
                errors_[0], b_, errors_[1]);                                                                         \
        errno = errors_[1];                                                                                          \
        b_;                                                                                                          \
    })
#define ALIKE(call) ALIKE_IF(a_ == b_, call)
#define ALIKE_FD(call)                                                                                               \
    ({                                                                                                               \
        long fd_ = ALIKE_IF((a_ < 0) == (b_ < 0), call);                                                             \
        fd_;                                                                                                         \
    })
/* That an address is bad is seen, unless the call is refused before. */
#define BAD(call)                                                                                                    \
    ({                                                                                                               \
        errno = 0;                                                                                                   \
        long got_ = (long)(call);                                                                                    \
        if (got_ != -1 || (errno != EFAULT && errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP))             \
            die("%s:%d: %s gave %ld, errno %d", __FILE__, __LINE__, #call, got_, errno);                             \
    })
#endif
