/* semop, semtimedop, semctl, msgsnd, msgrcv, msgctl, shmat, shmctl. */
#include "common.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static void test(void) {
    int sem = semget(IPC_PRIVATE, 2, 0600);
    CHECK(sem >= 0);
    struct sembuf two[2] = {{0, 3, 0}, {1, 1, 0}}, down = {1, -1, IPC_NOWAIT};
    OK(CALL(semop, sem, arg(two, sizeof two), 2));
    EQ(semctl(sem, 0, GETVAL), 3);
    OK(CALL(semtimedop, sem, arg(&down, sizeof down), 1, ARG(struct timespec, 1, 0)));
    expect_errno(CALL(semop, sem, arg(&down, sizeof down), 1), EAGAIN);
    down.sem_flg = 0;
    expect_errno(CALL(semtimedop, sem, arg(&down, sizeof down), 1, ARG(struct timespec, 0, 1000000)), EAGAIN);
    EFAULT_IN(p, CALL(semop, sem, p, 1));
    EFAULT_IN(p, CALL(semtimedop, sem, p, 1, NULL));
    EFAULT_IN(p, syscall(SYS_semtimedop, sem, arg(&down, sizeof down), 1, p));
    unsigned short *values = place(4, 2);
    OK(semctl(sem, 0, GETALL, values)), EQ(values[0], 3), EQ(values[1], 0);
    EFAULT_OUT(p, semctl(sem, 0, GETALL, p));
    OK(semctl(sem, 0, IPC_STAT, OUT(struct semid_ds))), OK(semctl(sem, 0, IPC_RMID));

    int queue = msgget(IPC_PRIVATE, 0600);
    CHECK(queue >= 0);
    long *m = place(8 + 8000, 8), *r = place(8 + 8000, 8);
    *m = 7, fill(m + 1, 8000, 140), evict(m, 8008);
    OK(CALL(msgsnd, queue, m, 8000, 0)), EQ(CALL(msgrcv, queue, r, 8000, 0, 0), 8000), EQ(*r, 7),
        check(r + 1, 8000, 140);
    expect_errno(CALL(msgrcv, queue, r, 8000, 0L, IPC_NOWAIT), ENOMSG);
    EFAULT_IN(p, CALL(msgsnd, queue, p, 100, 0));
    evict(m, 8008), OK(CALL(msgsnd, queue, m, 100, 0)), evict(r, 8008);
    expect_errno(CALL(msgrcv, queue, r, 10, 0L, 0), E2BIG), EQ(CALL(msgrcv, queue, r, 100, 0, 0), 100);
    struct msqid_ds *ds = OUT(struct msqid_ds);
    OK(msgctl(queue, IPC_STAT, ds)), EQ(ds->msg_qnum, 0);
    EFAULT_OUT(p, syscall(SYS_msgctl, queue, IPC_STAT, p));
    OK(msgctl(queue, IPC_RMID, NULL));

    int shm = shmget(IPC_PRIVATE, 8 * PAGE, 0600);
    CHECK(shm >= 0);
    char *s = shmat(shm, NULL, 0), *p = fresh(12);
    CHECK(s != (void *)-1);
    fill(s, 8 * PAGE, 141), evict(s, 8 * PAGE), check(s, 8 * PAGE, 141);
    struct shmid_ds *d = OUT(struct shmid_ds);
    OK(shmctl(shm, IPC_STAT, d)), EQ(d->shm_segsz, 8 * PAGE);
    EFAULT_OUT(b, syscall(SYS_shmctl, shm, IPC_STAT, b));
    /* Over managed memory, and after it is detached. */
    fill(p, 12 * PAGE, 142), evict(p, 12 * PAGE);
    expect_errno((long)shmat(shm, p + 2 * PAGE, 0), EINVAL);
    CHECK(shmat(shm, p + 2 * PAGE, SHM_REMAP) == p + 2 * PAGE);
    check(p, 2 * PAGE, 142), check(p + 2 * PAGE, 8 * PAGE, 141), check_from(p + 10 * PAGE, 2 * PAGE, 142, 10 * PAGE);
    p[3 * PAGE] ^= 1, EQ(s[PAGE], p[3 * PAGE]), p[3 * PAGE] ^= 1;
    OK(shmdt(p + 2 * PAGE)), check(p, 2 * PAGE, 142), check_from(p + 10 * PAGE, 2 * PAGE, 142, 10 * PAGE);
    OK(shmdt(s)), OK(shmctl(shm, IPC_RMID, NULL));
    munmap(p, 2 * PAGE), munmap(p + 10 * PAGE, 2 * PAGE);
}
BOTH_WAYS(test)
