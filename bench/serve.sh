#!/bin/bash
# `tessera serve` against `tessera bench infer` and against FastAPI with uvicorn and PyTorch, in turns in one run; then
# overload and slow connections. Prints rows of docs/performance.md.
#
#   bench/serve.sh BUILD [RUN]
#
# RUN: a trained run, such as the demo's, which is served too. Clients are `wrk` if it is installed, and otherwise a
# program of this folder. TESSERA_PEER_PYTHON: a Python with torch, timm, fastapi, uvicorn, numpy, pillow and safetensors;
# otherwise creates an environment under BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (3), TESSERA_BENCH_SECONDS (10, of
# a measurement), TESSERA_BENCH_OVERLOAD (60, seconds).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/serve.sh BUILD [RUN]}
python=$("$here/peer_python" "$build" serve "torch, timm, fastapi, uvicorn, PIL, safetensors" torch timm fastapi uvicorn \
  numpy pillow safetensors)
run=("$python" "$here/serve.py" --program "$build/tessera" --seconds "${TESSERA_BENCH_SECONDS:-10}")
rates=("${run[@]}" rates --rounds "${TESSERA_BENCH_ROUNDS:-3}")
echo "| model | precision | server | clients | requests/s | of bench infer | p50 ms | p99 ms |"
echo "|---|---|---|---|---|---|---|---|"
"${rates[@]}" --model deit3_small_patch16_224 --precisions fp32,bf16
"${rates[@]}" --model vil_tiny_patch16_224 --precisions fp32,bf16
[ $# -lt 2 ] || "${rates[@]}" --weights "$2" --precisions fp32,bf16
echo
echo "Overload, and slow connections:"
echo
echo "| measured | value | must be |"
echo "|---|---|---|"
"${run[@]}" overload --overload-seconds "${TESSERA_BENCH_OVERLOAD:-60}"
"${run[@]}" slow
