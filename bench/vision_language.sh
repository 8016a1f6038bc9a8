#!/bin/bash
# Language models, image towers and tokenisers against transformers, OpenCLIP and tokenizers, in turns. Prints
# tables for docs/performance.md.
#
#   bench/vision_language.sh BUILD [decode] [image] [texts] [step] [tokens]
#
# TESSERA_PEER_PYTHON: a Python with torch, transformers, open_clip and tokenizers; otherwise creates an
# environment under BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (5), TESSERA_BENCH_THREADS (1).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/vision_language.sh BUILD [decode] [image] [texts] [step] [tokens]}
shift
python=$("$here/peer_python" "$build" vision_language "torch, transformers, open_clip, tokenizers" \
  torch transformers open_clip_torch tokenizers)
export OMP_NUM_THREADS=${TESSERA_BENCH_THREADS:-1}
exec "$python" "$here/vision_language_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}" \
  --threads "$OMP_NUM_THREADS" "$@"
