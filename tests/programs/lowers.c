/* lowers NUMBER PROGRAM [ARGS...]: has the program executed with so many descriptors at most. To be linked statically. */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct rlimit limit = {argc > 2 ? strtoul(argv[1], NULL, 10) : 0, 0};
    limit.rlim_max = limit.rlim_cur;
    if (argc < 3 || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    execv(argv[2], argv + 2);
    return 2;
}
