/* Executing what is no program: the answer comes at once and is the kernel's. */
#include "common.h"

int main(void) {
    tmpdir();
    alarm(20);
    OK(mkfifo("fifo", 0755));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    OK(bind(s, (struct sockaddr *)&name, sizeof name)), OK(chmod("socket", 0755));
    OK(mkdir("directory", 0755)), OK(symlink("fifo", "link")), OK(symlink("loop", "loop"));
    make_file("text", 100, 1), make_file("script", 100, 1), make_file("empty", 0, 1);
    OK(chmod("script", 0755)), OK(chmod("empty", 0755));
    char *argv[] = {str("x"), NULL}, *env[] = {NULL};
    const char *const refused[] = {"fifo", "link", "socket", "directory", "text", "/dev/null"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char *path = str(refused[i]);
        expect_errno(execve(path, argv, env), EACCES);
        expect_errno(syscall(SYS_execveat, AT_FDCWD, path, argv, env, 0), EACCES);
        pid_t pid = vfork();
        if (!pid) {
            execve(path, argv, env);
            _exit(errno == EACCES ? 3 : 4);
        }
        expect_exit(pid, 3);
    }
    expect_errno(execve(str("loop"), argv, env), ELOOP);
    expect_errno(execve(str("script"), argv, env), ENOEXEC);
    expect_errno(execve(str("absent"), argv, env), ENOENT);
    expect_errno(execve(str("text/below"), argv, env), ENOTDIR);
    /* Through a descriptor, which must not open a pipe either. */
    int fd = open("fifo", O_PATH);
    CHECK(fd >= 0);
    expect_errno(syscall(SYS_execveat, fd, str(""), argv, env, AT_EMPTY_PATH), EACCES);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    expect_errno(execve(path, argv, env), EACCES);
    /* One that somebody writes to is as little a program. */
    int both = open("fifo", O_RDWR);
    CHECK(both >= 0);
    write_all(both, "#!/bin/true\n", 12);
    expect_errno(execve(str("fifo"), argv, env), EACCES);
    char back[12];
    EQ(read(both, back, 12), 12), OK(memcmp(back, "#!/bin/true\n", 12));
    puts("ok");
    return 0;
}
