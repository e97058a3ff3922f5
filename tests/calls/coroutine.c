/* Stacks that are ordinary memory: contexts and a thread whose stacks came from malloc and mmap, evicted between
 * turns. */
#include "common.h"
#include <ucontext.h>

enum { COROUTINES = 64, TURNS = 20, STACK = 128 << 10 };
static ucontext_t *main_context, *contexts[COROUTINES];
static char *stacks[COROUTINES];
static int sums[COROUTINES];

static void body(int me) {
    char local[20000];
    fill(local, sizeof local, me);
    for (int turn = 0; turn < TURNS; turn++) {
        sums[me] += turn;
        OK(swapcontext(contexts[me], main_context));
        check(local, sizeof local, me);
        int fd = open("/dev/zero", O_RDONLY);
        char text[3000];
        EQ(read(fd, text, sizeof text), sizeof text), check_zero(text, sizeof text), close(fd);
    }
}
static void *on_own_stack(void *arg) {
    char local[50000];
    fill(local, sizeof local, 99);
    for (int i = 0; i < 20; i++) evict(arg, 256 << 10), check(local, sizeof local, 99);
    return NULL;
}
int main(void) {
    tmpdir();
    main_context = (ucontext_t *)heap(sizeof *main_context);
    for (int i = 0; i < COROUTINES; i++) {
        contexts[i] = (ucontext_t *)heap(sizeof *contexts[i]);
        stacks[i] = i % 2 ? heap(STACK) : fresh(STACK / PAGE);
        OK(getcontext(contexts[i]));
        contexts[i]->uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK};
        contexts[i]->uc_link = main_context;
        makecontext(contexts[i], (void (*)(void))body, 1, i);
    }
    for (int turn = 0; turn <= TURNS; turn++)
        for (int i = 0; i < COROUTINES; i++) {
            evict(stacks[i], STACK), evict(contexts[i], sizeof *contexts[i]);
            OK(swapcontext(main_context, contexts[i]));
        }
    for (int i = 0; i < COROUTINES; i++) EQ(sums[i], TURNS * (TURNS - 1) / 2);
    pthread_attr_t attributes;
    pthread_t t;
    char *own = fresh(64);
    fill(own, 64 * PAGE, 1), evict(own, 64 * PAGE);
    pthread_attr_init(&attributes), OK(pthread_attr_setstack(&attributes, own, 64 * PAGE));
    OK(pthread_create(&t, &attributes, on_own_stack, own)), OK(pthread_join(t, NULL));
    puts("ok");
    return 0;
}
