/* crowded N MIB: N programs that each touch a page of 2 MiB, wait, and then fill all of it at a word, when all are there. How much memory all of
 * them have is looked at when they have, and is to be less than that. */
#include "../calls/common.h"

enum { MOST = 128, ROOM = 2 << 20, WATCHED_MS = 1500 };

static long anonymous_kib(int pid) {
    char name[64];
    long all, resident = 0, shared = 0;
    snprintf(name, sizeof name, "/proc/%d/statm", pid);
    FILE *file = fopen(name, "r");
    if (!file) return 0;
    CHECK(fscanf(file, "%ld %ld %ld", &all, &resident, &shared) == 3);
    fclose(file);
    return (resident - shared) * (long)(PAGE / 1024);
}
static void tell(char what) { EQ(write(1, &what, 1), 1); }
/* Where the other has failed, that was said. */
static void wait_for(int fd) {
    char what;
    if (read(fd, &what, 1) != 1) _exit(1);
}
static int one(void) {
    char *room = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    room = (char *)(((uintptr_t)room + ROOM - 1) & -(uintptr_t)ROOM);
    room[0] = 1;
    tell('r'), wait_for(0);
    noise(room, ROOM, getpid());
    tell('f'), wait_for(0);
    check_noise(room, ROOM, getpid());
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return one();
    int count = atoi(argv[1]), in[MOST], out[MOST];
    long most_kib = atol(argv[2]) * 1024, last_kib = 0;
    pid_t pids[MOST];
    CHECK(count <= MOST);
    for (int i = 0; i < count; i++) {
        int down[2], up[2];
        OK(pipe2(down, O_CLOEXEC)), OK(pipe2(up, O_CLOEXEC));
        pids[i] = vfork();
        if (pids[i] == 0) {
            dup2(down[0], 0), dup2(up[1], 1);
            execl("/proc/self/exe", argv[0], NULL);
            _exit(9);
        }
        CHECK(pids[i] > 0);
        close(down[0]), close(up[1]);
        in[i] = down[1], out[i] = up[0];
        wait_for(out[i]);
    }
    sleep_ms(WATCHED_MS);
    for (int i = 0; i < count; i++) EQ(write(in[i], "g", 1), 1);
    for (int i = 0; i < count; i++) wait_for(out[i]);
    /* Where it is more for a moment, it is to be less soon. */
    for (int ms = 0; ms < WATCHED_MS; ms += 100) {
        last_kib = anonymous_kib(getpid());
        for (int i = 0; i < count; i++) last_kib += anonymous_kib(pids[i]);
        if (last_kib <= most_kib) break;
        sleep_ms(100);
    }
    if (last_kib > most_kib) die("%ld KiB", last_kib);
    for (int i = 0; i < count; i++) EQ(write(in[i], "e", 1), 1);
    for (int i = 0; i < count; i++) expect_exit(pids[i], 0);
    puts("ok");
    return 0;
}
