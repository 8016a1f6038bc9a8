#!/bin/bash
# `tessera predict` as used in practice: one image in a new process, and a folder compared with the model
# alone.
#
#   bench/predict.sh BUILD TILES
#
# ViL-S with random weights, 500x375 JPEGs tiled from those under TILES (as in bench/data.sh). Needs
# BUILD/tessera, BUILD/bench/loader_bench and python3. TESSERA_BENCH_ROUNDS (5), TESSERA_BENCH_PICTURES
# (1000).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/predict.sh BUILD TILES}
tiles=${2:?usage: bench/predict.sh BUILD TILES}
pictures=${TESSERA_BENCH_PICTURES:-1000}
"$build/bench/loader_bench" prepare "$tiles" "$build/bench/pictures-$pictures" "$pictures"
exec python3 "$here/predict.py" --program "$build/tessera" --pictures "$build/bench/pictures-$pictures" \
  --rounds "${TESSERA_BENCH_ROUNDS:-5}"
