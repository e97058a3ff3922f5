/* prctl with pointers: PR_SET_NAME, PR_GET_NAME, PR_GET_PDEATHSIG. */
#include "common.h"
#include <sys/prctl.h>

static void test(void) {
    char *name = place(16, 1);
    OK(CALL(prctl, PR_SET_NAME, str("a-thread"), 0, 0, 0));
    OK(CALL(prctl, PR_GET_NAME, name, 0, 0, 0)), OK(strcmp(name, "a-thread"));
    memset(name, 1, 16), evict(name, 16);
    OK(pthread_setname_np(pthread_self(), str("another")));
    OK(CALL(prctl, PR_GET_NAME, name, 0, 0, 0)), OK(strcmp(name, "another"));
    int *signal = OUT(int);
    OK(CALL(prctl, PR_SET_PDEATHSIG, SIGUSR1, 0, 0, 0)), OK(CALL(prctl, PR_GET_PDEATHSIG, signal, 0, 0, 0));
    EQ(*signal, SIGUSR1), OK(CALL(prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0));
    EFAULT_IN(p, CALL(prctl, PR_SET_NAME, p, 0, 0, 0));
    EFAULT_OUT(p, CALL(prctl, PR_GET_NAME, p, 0, 0, 0));
    EFAULT_OUT(p, CALL(prctl, PR_GET_PDEATHSIG, p, 0, 0, 0));
    expect_errno(CALL(prctl, 99999, 0, 0, 0, 0), EINVAL);
}
BOTH_WAYS(test)
