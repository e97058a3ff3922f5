#!/bin/bash
# MPI: three processes send each other large messages; Open MPI says what goes wrong with that on standard error. Argument: scale.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=$PWD
mpicc -O2 -o messages messages.c
mpirun --oversubscribe -n 3 ./messages $((16 * $1)) 2>errors
cat errors
