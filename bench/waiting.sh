#!/bin/bash
# The share of time that training waits for data: a small Vision-LSTM on CIFAR-10, ViT-S on 500x375 JPEGs at
# 224. Prints a table and a line of JSON.
#
#   bench/waiting.sh BUILD CIFAR10 TILES
#
# BUILD contains tessera and loader_bench; CIFAR10 the shards; TILES: a folder of JPEGs to tile the images
# from.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 3 ] || { echo "usage: bench/waiting.sh BUILD CIFAR10 TILES" >&2; exit 2; }
"$1/bench/loader_bench" prepare "$3" "$1/bench/pictures" 512 >&2
exec python3 "$here/train_runs.py" --program "$1/tessera" waiting "$2" "$1/bench/pictures"
