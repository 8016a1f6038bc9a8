#!/bin/bash
# Two processes of one thread against one process with two, on the same training run. Prints a table and a
# line of JSON.
#
#   bench/processes.sh BUILD [DATA]
#
# BUILD contains tessera; DATA: shards of CIFAR-10 (default: the built-in images).
# TESSERA_BENCH_ROUNDS (5). TESSERA_BENCH_BEFORE: the build of another version, measured in the same rounds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/processes.sh BUILD [DATA]}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python3 "$here/train_runs.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}" \
  processes "${2:-shapes:train=2560,val=16}" ${TESSERA_BENCH_BEFORE:+--before "$TESSERA_BENCH_BEFORE/tessera"}
