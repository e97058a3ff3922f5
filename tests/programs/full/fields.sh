#!/bin/bash
# Fortran: a program with all its data in COMMON blocks is compiled and run. Argument: scale.
set -eu
gfortran -O2 -DN=$((160 + 8 * $1)) -o fields fields.F90
./fields
