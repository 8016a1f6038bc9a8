#!/bin/bash
# Vision-LSTM against a plain PyTorch module of it, torch.compile and OpenVINO, in one interleaved run.
# bench/vil_peer.py first compares its logits with ours. Prints tables of docs/performance.md.
#
#   bench/vil.sh BUILD
#
# TESSERA_PEER_PYTHON as for bench/infer.sh. TESSERA_BENCH_ROUNDS (5).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/vil.sh BUILD}
python=$("$here/peer_python" "$build" infer "timm, openvino, nncf" timm openvino onnx onnxscript nncf)
run=("$python" "$here/infer_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}" --seconds 1)
echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
echo "|---|---|---|---|---|---|---|"
"${run[@]}" --model vil_tiny_patch16_224 --precisions fp32,bf16 --compile
for size in small base; do
  "${run[@]}" --model "vil_${size}_patch16_224" --precisions fp32,bf16
done
echo
echo "Training steps:"
echo
echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
echo "|---|---|---|---|---|---|---|"
for size in tiny small; do
  "${run[@]}" --model "vil_${size}_patch16_224" --precisions fp32,bf16 --train
done
