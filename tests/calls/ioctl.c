/* ioctl: FIONREAD, FIONBIO, TIOCGWINSZ, TIOCSWINSZ and TCGETS on a pseudo terminal, SIOCGIFCONF and its inner
 * pointer. */
#include "common.h"
#include <net/if.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static void test(void) {
    int pipes[2];
    OK(pipe(pipes));
    EQ(write(pipes[1], "12345", 5), 5);
    int *n = OUT(int);
    OK(CALL(ioctl, pipes[0], FIONREAD, n)), EQ(*n, 5);
    n = OLD(int);
    OK(CALL(ioctl, pipes[0], FIONREAD, n)), EQ(*n, 5);
    OK(CALL(ioctl, pipes[0], FIONBIO, ARG(int, 1)));
    EFAULT_OUT(p, CALL(ioctl, pipes[0], FIONREAD, p));
    EFAULT_IN(p, CALL(ioctl, pipes[0], FIONBIO, p));
    expect_errno(CALL(ioctl, -1, FIONREAD, n), EBADF);
    struct winsize *w = OUT(struct winsize);
    expect_errno(CALL(ioctl, pipes[0], TIOCGWINSZ, w), ENOTTY);
    int pty = posix_openpt(O_RDWR | O_NOCTTY);
    if (pty >= 0) {
        OK(CALL(ioctl, pty, TIOCSWINSZ, ARG(struct winsize, 24, 80, 1, 2)));
        OK(CALL(ioctl, pty, TIOCGWINSZ, w)), EQ(w->ws_row, 24), EQ(w->ws_col, 80), EQ(w->ws_ypixel, 2);
        w = OLD(struct winsize);
        OK(CALL(ioctl, pty, TIOCGWINSZ, w)), EQ(w->ws_col, 80);
        EFAULT_OUT(p, CALL(ioctl, pty, TIOCGWINSZ, p));
        EFAULT_EDGE(p, CALL(ioctl, pty, TIOCSWINSZ, p));
        struct termios *t = OUT(struct termios);
        OK(tcgetattr(pty, t)), evict(t, sizeof *t), OK(tcsetattr(pty, TCSANOW, t));
        close(pty);
    }
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq *all = place(64 * sizeof *all, 8);
    struct ifconf *c = ARG(struct ifconf, .ifc_len = 64 * sizeof *all, .ifc_req = all);
    OK(CALL(ioctl, fd, SIOCGIFCONF, c)), CHECK(c->ifc_len >= 0 && c->ifc_len % sizeof *all == 0);
    if (c->ifc_len) {
        CHECK(all[0].ifr_name[0]);
        evict(all, 64 * sizeof *all);
        struct ifreq one;
        memcpy(one.ifr_name, all[0].ifr_name, IFNAMSIZ);
        struct ifreq *r = arg(&one, sizeof one);
        OK(CALL(ioctl, fd, SIOCGIFFLAGS, r)), CHECK(r->ifr_flags != 0);
        for (void **b = bad_out(); *b; b++)
            expect_errno(CALL(ioctl, fd, SIOCGIFCONF,
                ARG(struct ifconf, .ifc_len = 64 * sizeof *all, .ifc_req = *b)), EFAULT);
    }
    EFAULT_IN(p, CALL(ioctl, fd, SIOCGIFCONF, p));
    close(fd), close(pipes[0]), close(pipes[1]);
}
BOTH_WAYS(test)
