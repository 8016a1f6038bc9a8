#!/bin/bash
# DiT-S/2 and DiT-LLaMA-S/2 on latents of 32 x 32 against plain PyTorch, torch.compile, diffusers and OpenVINO
# in one interleaved run (bench/generate_peer.py, which first compares its predictions with ours). Prints
# tables of docs/performance.md.
#
#   bench/generate.sh BUILD
#
# TESSERA_PEER_PYTHON as for bench/infer.sh, with diffusers. TESSERA_BENCH_ROUNDS (5).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/generate.sh BUILD}
python=$("$here/peer_python" "$build" generate "torch, diffusers, openvino" torch diffusers openvino safetensors nncf)
run=("$python" "$here/generate_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}")
echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
echo "|---|---|---|---|---|---|---|"
"${run[@]}" --precisions bf16,int8
echo
echo "Training steps:"
echo
echo "| model | batch | precision | | images/s | of the limit | tessera is faster by |"
echo "|---|---|---|---|---|---|---|"
"${run[@]}" --train
