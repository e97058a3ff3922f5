/* A library that is opened with RTLD_DEEPBIND finds functions in those that it needs before it finds them in the program: what it
 * allocates the program frees, and the other way round. */
#include "common.h"
#include <dlfcn.h>

typedef char *(*demangle)(const char *, char *, size_t *, int *);
static const char name[] = "_ZN7outswap5pagesIiSt4pairIhdEEEvT_T0_", meaning[] = "void outswap::pages<int, std::pair<unsigned char, double> >(";

static void give_and_take(demangle f) {
    int status;
    for (int i = 0; i < 1000; i++) {
        char *text = f(name, NULL, NULL, &status);
        OK(status), OK(strncmp(text, meaning, sizeof meaning - 1)), free(text);
        /* Too short: it takes another one, and frees this. */
        size_t n = 8;
        text = f(name, malloc(n), &n, &status);
        OK(status), OK(strncmp(text, meaning, sizeof meaning - 1)), free(text);
    }
}
/* Paths are looked up for who calls, and not for a function in between: the program finds itself beside itself, though it cannot open that. */
static void who_calls(void) {
    char path[PATH_MAX], beside[PATH_MAX + 16];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(n > 0), path[n] = 0;
    snprintf(beside, sizeof beside, "$ORIGIN%s", strrchr(path, '/'));
    CHECK(dlopen(beside, RTLD_NOW | RTLD_DEEPBIND) == NULL);
    const char *why = dlerror();
    CHECK(why && strstr(why, "cannot dynamically load"));
}
int main(void) {
    tmpdir();
    char *p = fresh(4 * MIB / PAGE);
    fill(p, 4 * MIB, 1), evict(p, 4 * MIB);
    who_calls();
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library) die("%s", dlerror());
    void *f = dlsym(library, "__cxa_demangle");
    CHECK(f);
    give_and_take((demangle)f);
    OK(dlclose(library));
    check(p, 4 * MIB, 1);
    puts("ok");
    return 0;
}
