#!/bin/bash
# What evaluation and analysis cost: the rate of `eval` beside the bare model's, and the time of the looks inside a model.
# Prints a table of docs/performance.md.
#
#   bench/analysis_speed.sh BUILD JPEGS CIFAR10 RUN
#
# JPEGS holds a folder of images for each class, of 224 pixels; CIFAR10 the shards of CIFAR-10; RUN a run of recipes/compare/vit.toml.
# TESSERA_PEER_PYTHON names a Python that has scikit-learn; without it an environment is made under BUILD/peers.
# TESSERA_BENCH_ROUNDS (3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 4 ] || { echo "usage: bench/analysis_speed.sh BUILD JPEGS CIFAR10 RUN" >&2; exit 2; }
python=$("$here/peer_python" "$1" analysis "sklearn, numpy" numpy scikit-learn)
exec "$python" "$here/analysis_speed.py" --program "$1/tessera" --jpegs "$2" --cifar10 "$3" --run "$4" \
  --rounds "${TESSERA_BENCH_ROUNDS:-3}"
