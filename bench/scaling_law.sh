#!/bin/sh
# A scaling law of DARL's pre-training, from twelve trainings to the page: the nine cheapest predict the other three.
#
#   bench/scaling_law.sh build/tessera runs/darl-law
set -e
program=$1 output=$2
"$program" sweep "$(dirname "$0")/../recipes/scaling/darl_law.toml" --output "$output"
for run in "$output"/*/seed-0; do
  "$program" probe --weights "$run" --data shapes:train=8000,val=1000 --json >"$run/probe.json"
  "$program" eval --weights "$run" --data shapes:train=10,val=1000,cues=agree --json >"$run/other.json"
done
"$program" laws fit "$output" --held-out 3 --report "$output/law.html"
