#!/bin/bash
# Two processes of one thread that divide optimiser, average, gradients and weights by ZeRO, against two that divide samples
# alone. Prints a table and a line of JSON.
#
#   bench/zero.sh BUILD
#
# BUILD contains tessera. TESSERA_BENCH_ROUNDS (5).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/zero.sh BUILD}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python3 "$here/train_runs.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}" zero
