#!/bin/bash
# The mLSTM cell against the PyPI package mlstm-kernels, interleaved in one run. Prints one JSON line per
# length.
#
#   bench/mlstm.sh BUILD [TOKENS ...]
#
# BUILD contains the compiled mlstm_bench; 4 heads of 96, batch 1, float32, by default 196 784 3136 12544
# tokens. TESSERA_PEER_PYTHON: a Python with mlstm-kernels and torch; otherwise creates an environment under
# BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (7), OMP_NUM_THREADS (2).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/mlstm.sh BUILD [TOKENS ...]}
shift

python=$("$here/peer_python" "$build" mlstm "mlstm_kernels.torch" mlstm-kernels torch einops)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
exec "$python" "$here/mlstm_peer.py" --program "$build/src/kernels/mlstm_bench" \
  --rounds "${TESSERA_BENCH_ROUNDS:-7}" --tokens ${@:-196 784 3136 12544}
