#!/bin/bash
# Backbones against timm in PyTorch and OpenVINO in one interleaved run. Prints rows of docs/performance.md.
#
#   bench/infer.sh BUILD
#
# TESSERA_PEER_PYTHON: a Python with torch, timm, openvino and nncf; otherwise creates an environment under
# BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (5).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/infer.sh BUILD}
python=$("$here/peer_python" "$build" infer "timm, openvino, nncf" timm openvino onnx onnxscript nncf)
rounds=${TESSERA_BENCH_ROUNDS:-5}
echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
echo "|---|---|---|---|---|---|---|"
"$python" "$here/infer_peer.py" --program "$build/tessera" --batch 8 --rounds "$rounds"
"$python" "$here/infer_peer.py" --program "$build/tessera" --batch 1 --rounds "$rounds"
"$python" "$here/infer_peer.py" --program "$build/tessera" --batch 8 --rounds "$rounds" \
  --model deit3_base_patch16_224 --precisions bf16
echo
echo "Training steps:"
echo
echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
echo "|---|---|---|---|---|---|---|"
"$python" "$here/infer_peer.py" --program "$build/tessera" --batch 8 --rounds "$rounds" --train --precisions bf16,fp32
