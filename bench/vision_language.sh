#!/bin/bash
# Language models, towers of images and tokenisers beside transformers, OpenCLIP and tokenizers, in turns; prints tables
# for docs/performance.md.
#
#   bench/vision_language.sh BUILD [decode] [image] [texts] [step] [tokens]
#
# TESSERA_PEER_PYTHON names a Python that has torch, transformers, open_clip and tokenizers; without it an environment of
# its own is made under BUILD/peers (several GB). TESSERA_BENCH_ROUNDS (5), TESSERA_BENCH_THREADS (1).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/vision_language.sh BUILD [decode] [image] [texts] [step] [tokens]}
shift
python=$("$here/peer_python" "$build" vision_language "torch, transformers, open_clip, tokenizers" \
  torch transformers open_clip_torch tokenizers)
export OMP_NUM_THREADS=${TESSERA_BENCH_THREADS:-1}
exec "$python" "$here/vision_language_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-5}" \
  --threads "$OMP_NUM_THREADS" "$@"
