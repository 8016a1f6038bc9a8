#!/bin/bash
# The cost of evaluation and analysis: the rate of `eval` relative to the bare model, and the time of analyses
# inside a model. Prints a table of docs/performance.md.
#
#   bench/analysis_speed.sh BUILD JPEGS CIFAR10 RUN
#
# JPEGS contains a folder of 224-pixel images per class, CIFAR10 the shards of CIFAR-10. RUN is a run of
# recipes/compare/vit.toml. TESSERA_PEER_PYTHON: a Python with scikit-learn; otherwise creates an environment
# under BUILD/peers. TESSERA_BENCH_ROUNDS (3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 4 ] || { echo "usage: bench/analysis_speed.sh BUILD JPEGS CIFAR10 RUN" >&2; exit 2; }
python=$("$here/peer_python" "$1" analysis "sklearn, numpy" numpy scikit-learn)
exec "$python" "$here/analysis_speed.py" --program "$1/tessera" --jpegs "$2" --cifar10 "$3" --run "$4" \
  --rounds "${TESSERA_BENCH_ROUNDS:-3}"
