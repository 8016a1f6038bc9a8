#!/bin/bash
# ResNet-50 and ConvNeXt-T against timm in PyTorch (channels last) and OpenVINO in one interleaved run. Prints
# rows of docs/performance.md.
#
#   bench/convnets.sh BUILD
#
# TESSERA_PEER_PYTHON: a Python with torch, timm and openvino; otherwise creates an environment under
# BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (5).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/convnets.sh BUILD}
python=$("$here/peer_python" "$build" infer "timm, openvino" timm openvino)
rounds=${TESSERA_BENCH_ROUNDS:-5}
header() {
  echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
  echo "|---|---|---|---|---|---|---|"
}
peer() {
  "$python" "$here/infer_peer.py" --program "$build/tessera" --rounds "$rounds" --channels-last --precisions bf16,fp32 "$@"
}
header
for model in resnet50 convnext_tiny; do peer --batch 8 --model $model; done
for model in resnet50 convnext_tiny; do peer --batch 1 --model $model; done
echo
echo "Training steps:"
echo
header
for model in resnet50 convnext_tiny; do peer --batch 8 --model $model --train; done
