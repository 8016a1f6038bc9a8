#!/bin/bash
# `tessera data corrupt` against imagecorruptions: reads JPEGs, crops to 224, corrupts at severity 3, writes
# JPEGs of quality 85, one thread each (bench/corrupt_peer.py). Prints a table of docs/performance.md.
#
#   bench/corrupt.sh BUILD FOLDER
#
# FOLDER contains a folder of images per class. TESSERA_PEER_PYTHON: a Python with imagecorruptions; otherwise
# creates an environment under BUILD/peers. TESSERA_BENCH_ROUNDS (3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/corrupt.sh BUILD FOLDER}
python=$("$here/peer_python" "$build" corrupt "imagecorruptions" "numpy<1.25" scikit-image==0.20.0 "scipy<1.12" \
  "opencv-python-headless<4.9" "numba<0.59" "setuptools<70" pillow imagecorruptions)
export OMP_NUM_THREADS=1
exec "$python" -W ignore "$here/corrupt_peer.py" --program "$build/tessera" --folder "${2:?no FOLDER}" \
  --rounds "${TESSERA_BENCH_ROUNDS:-3}"
