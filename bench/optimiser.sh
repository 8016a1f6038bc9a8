#!/bin/bash
# The optimisers on a ViT-B's parameters against PyTorch and timm. Prints a table and a line of JSON.
#
#   bench/optimiser.sh BUILD
#
# BUILD contains the compiled optimiser_bench (ninja -C BUILD optimiser_bench). TESSERA_PEER_PYTHON: a Python
# with torch and timm; otherwise creates an environment under BUILD/peers (several GB). TESSERA_BENCH_ROUNDS
# (3), OMP_NUM_THREADS (2).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/optimiser.sh BUILD}
python=$("$here/peer_python" "$build" timm "timm, torch" timm torchvision)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
exec "$python" "$here/optimiser_peer.py" --program "$build/src/train/optimiser_bench" \
  --rounds "${TESSERA_BENCH_ROUNDS:-3}"
