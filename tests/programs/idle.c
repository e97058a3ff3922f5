/* idle PARENT_MIB CHILD_MIB [same]: fills memory and waits for a child, which works on memory of its own, and has as much as both together may
 * have at a time only if the parent gives up most of what it has. It ends when that has happened, and says how many times it went over all
 * of its memory until then; gives up after 60 s. With `same` the child is forked, and else executes this program anew. Each looks at what
 * it has. */
#include "../calls/common.h"

enum { WORDS = PAGE / 8, WAIT_S = 60 };

typedef uint64_t page_of_words[WORDS];

static page_of_words *make_pages(size_t pages) {
    page_of_words *at = malloc(pages * PAGE);
    uint64_t x = 1;
    CHECK(at);
    for (size_t i = 0; i < pages; i++)
        for (size_t k = 0; k < WORDS; k++) at[i][k] = k % 2 ? next_random(&x) : i;
    return at;
}

static void look_at(page_of_words *at, size_t pages, uint64_t rounds) {
    for (size_t i = 0; i < pages; i++) EQ(at[i][0], i + rounds), EQ(at[i][2], i);
}

/* What the process that waits has in memory, beside what it shares with files. */
static size_t resident_bytes(pid_t pid) {
    char path[64], line[256];
    size_t kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *status = fopen(path, "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "RssAnon: %zu", &kib);
    CHECK(fclose(status) == 0 && kib > 0);
    return kib * 1024;
}

static void work(pid_t parent, size_t pages, size_t enough) {
    page_of_words *at = make_pages(pages);
    struct timespec start, now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
    for (uint64_t rounds = 1;; rounds++) {
        for (size_t i = 0; i < pages; i++) at[i][0]++;
        look_at(at, pages, rounds);
        if (resident_bytes(parent) < enough) return;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        CHECK(now.tv_sec - start.tv_sec < WAIT_S);
    }
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    size_t own = atol(argv[1]) * MIB / PAGE, its = atol(argv[2]) * MIB / PAGE;
    if (argc > 4) {
        work(getppid(), its, own * PAGE / 2);
        return 0;
    }
    page_of_words *at = make_pages(own);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (!pid && argc > 3) {
        work(parent, its, own * PAGE / 2);
        _exit(0);
    }
    if (!pid) {
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "anew", "child", NULL);
        _exit(127);
    }
    int status;
    EQ(waitpid(pid, &status, 0), pid), EQ(status, 0);
    look_at(at, own, 0);
    puts("ok");
    return 0;
}
