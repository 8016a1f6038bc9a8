#!/bin/bash
# Dense prediction against transformers, torchvision and pycocotools, one thread. Prints a table of
# docs/performance.md.
#
#   bench/dense.sh BUILD [regions] [suppression] [upernet] [mask_rcnn] [mask_rcnn_step] [detr] [average_precision]
#
# BUILD contains tessera, roi_align_bench, nms_bench and coco_bench. TESSERA_PEER_PYTHON: a Python with torch,
# torchvision, transformers, pycocotools and Pillow; otherwise creates an environment under BUILD/peers
# (several GB). TESSERA_BENCH_ROUNDS (3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/dense.sh BUILD [PART ...]}
shift
python=$("$here/peer_python" "$build" dense "torchvision, transformers, pycocotools, PIL" torch torchvision transformers \
  pycocotools pillow numpy)
export OMP_NUM_THREADS=1
exec "$python" "$here/dense_peer.py" --build "$build" --recipes "$here/../recipes" \
  --rounds "${TESSERA_BENCH_ROUNDS:-3}" "$@"
