#!/bin/bash
# Trains the backbones on CIFAR-10 with one recipe, half an hour each. Prints a Markdown table and draws one
# chart of all curves.
#
#   bench/compare.sh BUILD DATA OUTPUT [SEED ...]
#
# BUILD contains tessera and compare_runs (ninja -C BUILD tessera compare_runs), DATA the shards of CIFAR-10.
# Runs are OUTPUT/MODEL/seed-N; finished ones are skipped, an interrupted one is resumed. TESSERA_COMPARE: the
# models (default: all of recipes/compare), for example "vil vit". TESSERA_COMPARE_SET: further settings of
# every run, for example "train.precision=bf16 train.epochs=12". The default seed is 0. Writes
# OUTPUT/accuracy.svg.
#
#   bench/compare.sh --speed BUILD DATA
#
# Prints images/s of 60 steps and the peak of the resident memory.
#
#   bench/compare.sh --segment BUILD OUTPUT
#
# The same models learn to segment the built-in images by recipes/upernet/shapes_common.toml. Prints their mIoU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
models=${TESSERA_COMPARE:-vit vil vil_pyramid vim vrwkv illama visionllama_plain visionllama_pyramid poolformer vanillanet}
if [ "${1:-}" = --speed ]; then
  [ $# -eq 3 ] || { echo "usage: bench/compare.sh --speed BUILD DATA" >&2; exit 2; }
  run=$(mktemp -d)
  trap 'rm -rf "$run"' EXIT
  for model in $models; do
    peak=$({ /usr/bin/time -f %M "$2/tessera" train "$here/../recipes/compare/$model.toml" --data "$3" --output "$run/$model" \
      --set train.eval_every=1000 train.log_every=20 ${TESSERA_COMPARE_SET:-} train.steps=60 >&2; } 2>&1 | tail -1)
    rate=$(grep '"kind":"train"' "$run/$model/metrics.jsonl" | tail -1 | grep -o '"images_per_second":[0-9.]*' | cut -d: -f2)
    printf '| %s | %.0f | %d MB |\n' "$model" "$rate" $((peak / 1024))
  done
  exit
fi
if [ "${1:-}" = --segment ]; then
  [ $# -eq 3 ] || { echo "usage: bench/compare.sh --segment BUILD OUTPUT" >&2; exit 2; }
  for model in $models; do
    run=$3/$model
    case $model in poolformer | vanillanet) maps=1 ;; *) maps=2 ;; esac  # they have two stages
    [ -e "$run/report.html" ] || "$2/tessera" train "$here/../recipes/compare/$model.toml" "$here/../recipes/upernet/shapes_common.toml" \
      --output "$run" --resume auto --set model.image_size=64 "task.auxiliary_index=$maps" ${TESSERA_COMPARE_SET:-} >&2
    printf '| %s | %s |\n' "$model" "$(grep '"kind":"eval"' "$run/metrics.jsonl" | tail -1 | grep -o '"miou":[0-9.]*' | cut -d: -f2)"
  done
  exit
fi
[ $# -ge 3 ] || { echo "usage: bench/compare.sh BUILD DATA OUTPUT [SEED ...]" >&2; exit 2; }
build=$1 data=$2 output=$3
shift 3
for seed in "${@:-0}"; do
  for model in $models; do
    run=$output/$model/seed-$seed
    [ -e "$run/report.html" ] || "$build/tessera" train "$here/../recipes/compare/$model.toml" --data "$data" \
      --output "$run" --resume auto --set "train.seed=$seed" ${TESSERA_COMPARE_SET:-} >&2
  done
done
exec "$build/bench/compare_runs" "$output"
