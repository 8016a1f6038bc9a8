#!/bin/bash
# The share of the time that training waits for data: a small Vision-LSTM on CIFAR-10, ViT-S on 500x375 JPEGs at 224.
# Prints a line of JSON each.
#
#   bench/waiting.sh BUILD CIFAR10 TILES
#
# BUILD holds tessera and loader_bench; CIFAR10 the shards; TILES a folder with JPEGs to tile the pictures from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 3 ] || { echo "usage: bench/waiting.sh BUILD CIFAR10 TILES" >&2; exit 2; }
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

measure() {  # name, recipe, data, steps
  "$build/tessera" train "$2" --data "$3" --output "$folder/$1" --json --set schedule.warmup_epochs=0 \
    "train.steps=$4" train.eval_every=0 2>"$folder/log" >"$folder/line" || { tail -n 3 "$folder/log" >&2; exit 1; }
  python3 -c 'import json, sys
line = json.load(open(sys.argv[2]))
print(json.dumps({"run": sys.argv[1], "wait_share": round(line["wait_share"], 5),
                  "images_per_s": round(line["images_per_s"], 1)}))' "$1" "$folder/line"
}

measure cifar10 "$here/../recipes/compare/vil.toml" "$2" 200
"$build/bench/loader_bench" prepare "$3" "$build/bench/pictures" 512 >&2
measure vit-s-224 "$here/waiting.toml" "$build/bench/pictures" 20
