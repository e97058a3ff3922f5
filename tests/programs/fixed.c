/* Executes a program at the addresses that all programs have where none are drawn at random. */
#include <stdio.h>
#include <sys/personality.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int before = personality(0xffffffff);
    if (argc < 2 || before < 0 || personality((unsigned)before | ADDR_NO_RANDOMIZE) < 0) return 97;
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 98;
}
