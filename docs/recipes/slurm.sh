#!/bin/bash
#SBATCH --job-name=sort-outswap
#SBATCH --mem=1G
#SBATCH --tmp=8G
#SBATCH --time=01:00:00
# The limit is a part of what Slurm gives to the job (MiB, for each node), so that page cache and small programs have room, too.
set -eu
ram=$((${SLURM_MEM_PER_NODE:-1024} * 85 / 100))M
exec outswap run --ram "$ram" --swap-dir "${TMPDIR:-/tmp}" --stats "outswap-${SLURM_JOB_ID:-0}.json" -- "$@"
