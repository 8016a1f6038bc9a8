#!/bin/bash
# Every sampler, and guidance from 1 to 4, of one trained generator: function evaluations, seconds, FID, precision and
# recall; prints tables of docs/ablations/generation.md.
#
#   bench/samplers.sh BUILD RUN CLASSIFIER DATA
#
# RUN is a run of task diffuse, CLASSIFIER weights for the features of FID, DATA the real images (their
# validation split). TESSERA_BENCH_IMAGES (5000). TESSERA_PLOT: file for FID, precision and recall by guidance
# (SVG). TESSERA_PEER_PYTHON: a Python of 3.9 or later.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/samplers.sh BUILD RUN CLASSIFIER DATA}
exec "${TESSERA_PEER_PYTHON:-python3}" "$here/samplers.py" --program "$build/tessera" --run "${2:?no RUN}" \
  --classifier "${3:?no CLASSIFIER}" --data "${4:?no DATA}" --images "${TESSERA_BENCH_IMAGES:-5000}" \
  ${TESSERA_PLOT:+--plot "$TESSERA_PLOT"}
