/* Large messages between the processes of an MPI program, and sums of what they got. Argument: MiB of each of two arrays. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PARTS = 8, ROUNDS = 4 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, count;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &count);
    size_t n = (size_t)atol(argv[1]) << 17, part = n / PARTS, wrong = 0;
    double *mine = malloc(n * sizeof *mine), *theirs = malloc(n * sizeof *theirs);
    for (size_t i = 0; i < n; i++) mine[i] = (double)(i % 1000) * (rank + 1);
    for (int round = 0; round < ROUNDS; round++) {
        int to = (rank + 1 + round) % count, from = (rank + 2 * count - 1 - round) % count;
        for (int k = 0; k < PARTS; k++)
            MPI_Sendrecv(mine + k * part, part, MPI_DOUBLE, to, k, theirs + k * part, part, MPI_DOUBLE, from, k, MPI_COMM_WORLD,
                MPI_STATUS_IGNORE);
        for (size_t i = 0; i < n; i++) wrong += theirs[i] != (double)(i % 1000) * (from + 1) + round;
        for (size_t i = 0; i < n; i++) mine[i] += 1;
    }
    double sum = wrong, all = 0;
    for (size_t i = 0; i < n; i++) sum += theirs[i];
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, mine, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (size_t i = 0; i < n; i++) wrong += mine[i] != (double)(i % 1000) * count + ROUNDS;
    /* One after the other, in an order that does not depend on who is faster. */
    for (int turn = 0; turn < count; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
        unsigned long told = wrong;
        MPI_Bcast(&told, 1, MPI_UNSIGNED_LONG, turn, MPI_COMM_WORLD);
        if (rank == 0) printf("%d of %d: %lu wrong, %.0f\n", turn, count, told, all);
    }
    MPI_Finalize();
}
