#!/bin/bash
# A sweep on a Slurm cluster: sbatch slurm_sweep.sh SWEEP.toml STORE. STORE lies on a file system that all nodes share.
# This small job holds the scheduler and the sweep; the workers are jobs of their own, which dask-jobqueue submits.
#SBATCH --job-name=inverse-depth
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail
sweep=$1
store=$2
address=$(mktemp)

# Each worker job does one run at a time, here on one GPU; for CPU nodes leave out --gres. Adapt memory, walltime, jobs.
python - "$address" <<'PYTHON' &
import signal
import sys

from dask_jobqueue import SLURMCluster

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with SLURMCluster(
    cores=1,
    processes=1,
    memory="16GB",
    walltime="12:00:00",
    job_extra_directives=["--gres=gpu:1"],
) as cluster:
    cluster.scale(jobs=16)
    with open(sys.argv[1], "w") as file:
        file.write(cluster.scheduler_address)
    signal.sigwait({signal.SIGTERM})  # leaving the block cancels the worker jobs
PYTHON
cluster=$!
trap 'kill "$cluster"; wait "$cluster" || true; rm -f "$address"' EXIT
until [ -s "$address" ]; do
  kill -0 "$cluster"
  sleep 1
done

inverse-depth sweep "$sweep" --store "$store" --scheduler "$(cat "$address")" &
sweeping=$!
trap 'kill -TERM "$sweeping"' TERM  # Slurm's warning before the time limit: submit again to resume
wait "$sweeping" || wait "$sweeping"
