#!/bin/bash
# Two processes of one thread against one process with two, on the same training run; prints one JSON of images/s.
#
#   bench/processes.sh BUILD [DATA]
#
# BUILD holds tessera with MPI; DATA shards of CIFAR-10 (the built-in pictures without). Rounds alternate, a median of
# TESSERA_BENCH_ROUNDS (5); a run is TESSERA_BENCH_STEPS (60) steps of 128 pictures of recipes/compare/vil.toml.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/processes.sh BUILD [DATA]}
data=${2:-shapes:train=2560,val=16}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The speed of the run that these words start: the mean of its lines but the first.
speed() {
  rm -rf "$folder/run"
  "$@" train "$here/../recipes/compare/vil.toml" --data "$data" --output "$folder/run" --set schedule.warmup_epochs=0 \
    train.steps="${TESSERA_BENCH_STEPS:-60}" train.log_every=20 train.eval_every=0 "train.threads=$threads" \
    data.val_share=0.01 >"$folder/log" 2>&1 || { tail -n 3 "$folder/log" >&2; exit 1; }
  python3 - "$folder/run/metrics.jsonl" <<'PYTHON'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(statistics.mean([line["images_per_second"] for line in lines if line["kind"] == "train"][1:]))
PYTHON
}

for ((round = 0; round < ${TESSERA_BENCH_ROUNDS:-5}; round++)); do
  threads=2 speed "$build/tessera" >>"$folder/one"
  threads=1 speed mpirun -n 2 --oversubscribe --bind-to none "$build/tessera" >>"$folder/two"
done
exec 3<"$folder/one" 4<"$folder/two"
python3 - <<'PYTHON'
import json, os, statistics
one, two = ([float(line) for line in os.fdopen(number)] for number in (3, 4))
ratios = [b / a for a, b in zip(one, two)]
print(json.dumps({"one_process_of_two_threads": round(statistics.median(one), 1),
                  "two_processes_of_one_thread": round(statistics.median(two), 1),
                  "ratio": round(statistics.median(ratios), 3), "rounds": [round(ratio, 3) for ratio in ratios]}))
PYTHON
