/* execve, execveat, posix_spawn, vfork, system: programs, arguments and environments in evicted memory. */
#include "common.h"
#include <spawn.h>

/* Started again by itself: checks what it was given. */
static int started(int argc, char **argv) {
    const char *e = getenv("OUTSWAP_CALL_ENV");
    if (argc != 1002 || strcmp(argv[1], "started") || !e || strlen(e) != 50000) return 21;
    for (int i = 2; i < argc; i++) {
        char want[32];
        snprintf(want, sizeof want, "argument %d", i);
        if (strcmp(argv[i], want)) return 22;
    }
    for (int i = 0; i < 50000; i++)
        if (e[i] != 'e') return 23;
    return 42;
}
static char **arguments, **environment;
static void prepare(char *self) {
    arguments = place(1003 * sizeof *arguments, 8);
    arguments[0] = str(self), arguments[1] = str("started");
    for (int i = 2; i < 1002; i++) {
        char text[32];
        snprintf(text, sizeof text, "argument %d", i);
        arguments[i] = str(text);
    }
    char *big = place(50100, 1);
    memset(big, 'e', 50100), memcpy(big, "OUTSWAP_CALL_ENV=", 17), big[50017] = 0;
    int n = 0;
    while (environ[n]) n++;
    environment = place((n + 2) * sizeof *environment, 8);
    for (int i = 0; i < n; i++) environment[i] = environ[i];
    environment[n] = big, environment[n + 1] = NULL;
    evict(big, 50100), evict(environment, (n + 2) * sizeof *environment), evict(arguments, 1003 * sizeof *arguments);
}
static void again(void) {
    for (int i = 0; i < 1002; i += 50) evict(arguments[i], 32);
    evict(arguments, 1003 * sizeof *arguments);
}
/* A child that shares the memory tries to execute what is not there. */
static __attribute__((noinline)) pid_t tries(const char *name, char *const arguments[], char *const environment[]) {
    pid_t pid = vfork();
    if (pid) return pid;
    execve(name, arguments, environment);
    _exit(errno);
}
static void test(char *self) {
    char *path = str(self), *bogus = str("no-such-program");
    pid_t pid;
    for (int way = 0; way < 3; way++) {
        again();
        if (!(pid = fork())) {
            evict(path, 1);
            if (way == 0) CALL(execve, path, arguments, environment);
            if (way == 1) CALL(execveat, AT_FDCWD, path, arguments, environment, 0);
            if (way == 2) CALL(execveat, open(path, O_RDONLY), str(""), arguments, environment, AT_EMPTY_PATH);
            _exit(99);
        }
        expect_exit(pid, 42);
    }
    again();
    if (!(pid = vfork())) {
        execve(path, arguments, environment);
        _exit(99);
    }
    expect_exit(pid, 42);
    /* A child of vfork shares memory until it is gone. */
    static volatile int shared;
    char *page = fresh(1);
    fill(page, PAGE, 5), evict(page, PAGE);
    if (!(pid = vfork())) {
        shared++;
        page[10] ^= 1;
        _exit(3);
    }
    expect_exit(pid, 3);
    page[10] ^= 1;
    check(page, PAGE, 5), CHECK(shared > 0);
    again();
    pid_t *out = OUT(pid_t);
    posix_spawn_file_actions_t *actions = OUT(posix_spawn_file_actions_t);
    posix_spawnattr_t *attributes = OUT(posix_spawnattr_t);
    OK(posix_spawn_file_actions_init(actions)), OK(posix_spawnattr_init(attributes));
    OK(posix_spawn_file_actions_addopen(actions, 0, str("/dev/null"), O_RDONLY, 0));
    evict(actions, sizeof *actions), evict(attributes, sizeof *attributes), evict(path, 1);
    OK(posix_spawn(out, path, actions, attributes, arguments, environment));
    expect_exit(*out, 42);
    again();
    OK(posix_spawnp(OLD(pid_t), path, NULL, NULL, arguments, environment));
    int status;
    CHECK(wait(&status) > 0), CHECK(WIFEXITED(status)), EQ(WEXITSTATUS(status), 42);
    EQ(posix_spawn(out, bogus, NULL, NULL, arguments, environment), ENOENT);
    EQ(WEXITSTATUS(system(str("exit 7"))), 7);
    FILE *f = popen(str("echo $((6*7))"), "r");
    int answer = 0;
    CHECK(f), EQ(fscanf(f, "%d", &answer), 1), EQ(answer, 42), OK(pclose(f));

    /* A failing exec leaves everything as it was. */
    evict(page, PAGE);
    expect_errno(CALL(execve, bogus, arguments, environment), ENOENT);
    expect_errno(CALL(execve, str("/"), arguments, environment), EACCES);
    /* Who searches for a program tries it where it is not, also with paths that end where their page does, or go on in the next. */
    const struct { const char *path; int error; } nowhere[] = {
        {"", ENOENT}, {"absent", ENOENT}, {"absent/program", ENOENT}, {"/proc/self/exe/program", ENOTDIR}, {"dangling", ENOENT},
        {"loop", ELOOP}, {"not-executable", EACCES}};
    if (!raw_mode) {
        OK(symlink("absent", "dangling")), OK(symlink("loop", "loop"));
        CHECK(close(open("not-executable", O_CREAT | O_WRONLY, 0644)) == 0);
    }
    char *two = fresh(2);
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        for (size_t over = 0; over < 3; over++) {
            char *name = strcpy(two + PAGE - strlen(nowhere[i].path) - 1 + over, nowhere[i].path);
            expect_errno(CALL(execve, name, arguments, environment), nowhere[i].error);
            evict(two, 2 * PAGE), expect_errno(CALL(execve, name, arguments, environment), nowhere[i].error);
            expect_exit(tries(name, arguments, environment), nowhere[i].error);
        }
    memset(two, 'a', PATH_MAX), expect_errno(CALL(execve, two, arguments, environment), ENAMETOOLONG);
    OK(munmap(two, 2 * PAGE));
    EFAULT_IN(p, CALL(execve, p, arguments, environment));
    EFAULT_IN(p, CALL(execve, path, p, environment));
    EFAULT_IN(p, CALL(execve, path, arguments, p));
    EFAULT_IN(p, CALL(execveat, AT_FDCWD, p, arguments, environment, 0));
    EFAULT_EDGE(p, CALL(execve, p, arguments, environment));
    char **bad = OUT(char *);
    for (void **p = bad_in(); *p; p++) {
        bad[0] = *p;
        evict(bad, sizeof *bad);
        expect_errno(CALL(execve, path, bad, environment), EFAULT);
    }
    check(page, PAGE, 5);
}
int main(int argc, char **argv) {
    if (argc > 1) return started(argc, argv);
    char self[PATH_MAX];
    CHECK(realpath("/proc/self/exe", self));
    tmpdir();
    prepare(self);
    for (raw_mode = 0; raw_mode < 2; raw_mode++) test(self);
    puts("ok");
    return 0;
}
