#!/bin/bash
# The figures of docs/analysis.md: a page for each model of recipes/compare, corruptions, cues, and a table
# that compares them.
#
#   bench/tables analysis docs/analysis.md bench/analysis.sh BUILD DATA RUNS OUTPUT
#
# BUILD contains tessera, DATA the shards of CIFAR-10, RUNS the runs trained by bench/compare.sh
# (RUNS/MODEL/seed-0). Writes NAME.json and NAME.html of every step to OUTPUT. Steps with an existing JSON are
# skipped, and an interrupted plane is resumed. TESSERA_CUES: folder of the cue-conflict images (else that
# step is skipped). TESSERA_COMPARE: some of the models. TESSERA_COMPARE_SET: further settings of the
# trainings on shapes. TESSERA_QUICK=1: few images, to try the script. Prints a Markdown table.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 4 ] || { echo "usage: bench/analysis.sh BUILD DATA RUNS OUTPUT" >&2; exit 2; }
build=$1 data=$2 runs=$3 output=$4
models=(${TESSERA_COMPARE:-vit vil illama visionllama_plain visionllama_pyramid})
points=25 loss_images=512 hessian=30 map_images=16 rank_images=30 cka_images=256 shape_images=20000 shape_epochs=8
corrupt=() severities=1,2,3,4,5
if [ -n "${TESSERA_QUICK:-}" ]; then
  points=3 loss_images=16 hessian=2 map_images=2 rank_images=2 cka_images=8 shape_images=256 shape_epochs=1
  corrupt=(--corruption fog,contrast) severities=1
fi
mkdir -p "$output"

# step NAME ARGUMENTS...: tessera with --json and --report, once.
step() {
  local name=$1
  shift
  [ -s "$output/$name.json" ] && return
  echo "bench/analysis.sh: $name" >&2
  "$build/tessera" "$@" --json --report "$output/$name.html" >"$output/$name.part"
  mv "$output/$name.part" "$output/$name.json"
}

if [ ! -e "$output/cifar10c.done" ]; then
  "$build/tessera" data corrupt "$data" -o "$output/cifar10c" "${corrupt[@]}" --severity "$severities" >&2
  touch "$output/cifar10c.done"
fi
all=()
for model in "${models[@]}"; do
  run=$runs/$model/seed-0
  all+=("$run")
  step "predictions-$model" eval --weights "$run" --data "$data" --measures --temperature 0.2
  baseline=()
  [ -e "$output/robustness-vit.csv" ] && baseline=(--baseline "$output/robustness-vit.csv")
  step "robustness-$model" analyse robustness --weights "$run" --data "$data" --corrupted "$output/cifar10c" \
    --severity "$severities" --precision bf16 "${baseline[@]}" --csv "$output/robustness-$model.csv"
  case $model in
    visionllama_pyramid) ;; # its stages do not share one sequence of tokens
    *) step "attention-$model" analyse attention --weights "$run" --data "$data" --images "$rank_images" ;;
  esac
  step "features-$model" analyse features --weights "$run" --data "$data" --images "$cka_images"
  step "similarity-$model" analyse similarity --weights "$run" --data "$data" --images "$cka_images"
  step "maps-$model" analyse maps --weights "$run" --data "$data" --images "$map_images"
  step "plane-$model" analyse landscape --weights "$run" --data "$data" --images "$loss_images" --kind plane \
    --points "$points" --state "$output/plane-$model.state" --hessian "$hessian"
  [ -n "${TESSERA_CUES:-}" ] && step "cues-$model" analyse cues --weights "$run" --data "$TESSERA_CUES"
  shapes=$output/shapes-$model
  [ -e "$shapes/report.html" ] || "$build/tessera" train "$here/../recipes/compare/$model.toml" \
    --data "shapes:cues=agree,train=$shape_images,val=1000" --output "$shapes" --resume auto \
    --set model.classes=8 "train.epochs=$shape_epochs" ${TESSERA_COMPARE_SET:-} >&2
  step "shapes-cues-$model" analyse cues --weights "$shapes" --data shapes:cues=conflict,val=2000
done
[ ${#models[@]} -eq 1 ] || step predictions-all eval --weights "${all[@]}" --data "$data" --measures
case " ${models[*]} " in
  *" visionllama_plain "*) step sizes-visionllama_plain eval --weights "$runs/visionllama_plain/seed-0" --data "$data" \
    --size 24,32,48,64 --set model.rope_anchor=32 --vary model.auto_scale=false,true ;;
esac
exec python3 "$here/analysis_table.py" "$output" "${models[@]}"
