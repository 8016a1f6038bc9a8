#!/bin/bash
# Pre-training steps against plain PyTorch modules in one interleaved run. bench/pretrain_peer.py first
# compares its losses with ours on the same weights and images. Prints a table of docs/performance.md.
#
#   bench/pretrain.sh BUILD
#
# MAE with ViT-B/16 and DARL-B/16 with the mean squared error, images of 224, batch 8, two threads, bf16; and
# supervised ViT-B/16 for comparison with MAE and DARL. TESSERA_PEER_PYTHON as for bench/infer.sh.
# TESSERA_BENCH_ROUNDS (5).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/pretrain.sh BUILD}
python=$("$here/peer_python" "$build" pretrain "torch, numpy, PIL, safetensors" torch numpy pillow safetensors)
exec "$python" "$here/pretrain_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}"
