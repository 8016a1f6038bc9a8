#!/bin/bash
# The loader against timm with Pillow, on the same 500x375 images. Prints a line of JSON and a table.
#
#   bench/data.sh BUILD [TILES]
#
# BUILD contains the compiled loader_bench. TILES (or TESSERA_BENCH_TILES) is a folder of JPEGs to tile the
# images from, for example those of cue-conflict. TESSERA_PEER_PYTHON: a Python with timm and torchvision;
# otherwise creates an environment under BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (10).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/data.sh BUILD [TILES]}
tiles=${2:-${TESSERA_BENCH_TILES:-}}
[ -n "$tiles" ] || { echo "bench/data.sh: name a folder of JPEGs to tile pictures from (TESSERA_BENCH_TILES)" >&2; exit 2; }

python=$("$here/peer_python" "$build" timm "timm, torchvision" timm torchvision)

program=$build/bench/loader_bench
"$program" prepare "$tiles" "$build/bench/pictures" 512
OMP_NUM_THREADS=1 exec "$python" "$here/data_peer.py" --program "$program" --folder "$build/bench/pictures" \
  --rounds "${TESSERA_BENCH_ROUNDS:-10}"
