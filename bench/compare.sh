#!/bin/bash
# The backbones on CIFAR-10 by one recipe, half an hour each: prints a Markdown table and draws one picture of all curves.
#
#   bench/compare.sh BUILD DATA OUTPUT [SEED ...]
#
# BUILD holds tessera and compare_runs (ninja -C BUILD tessera compare_runs); DATA the shards of CIFAR-10. Runs are
# OUTPUT/MODEL/seed-N; those that are done are not done again, one that was interrupted goes on. TESSERA_COMPARE names the
# models (all of recipes/compare), for example "vil vit", TESSERA_COMPARE_SET further settings of every run, for example
# "train.precision=bf16 train.epochs=12"; seed 0 unless others are given. Writes OUTPUT/accuracy.svg.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 3 ] || { echo "usage: bench/compare.sh BUILD DATA OUTPUT [SEED ...]" >&2; exit 2; }
build=$1 data=$2 output=$3
shift 3
for seed in "${@:-0}"; do
  for model in ${TESSERA_COMPARE:-vit vil illama visionllama_plain visionllama_pyramid}; do
    run=$output/$model/seed-$seed
    [ -e "$run/report.html" ] || "$build/tessera" train "$here/../recipes/compare/$model.toml" --data "$data" \
      --output "$run" --resume auto --set "train.seed=$seed" ${TESSERA_COMPARE_SET:-} >&2
  done
done
exec "$build/bench/compare_runs" "$output"
