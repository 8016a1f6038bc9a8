#!/usr/bin/env bash
# Trains LLaVA, Frozen and Flamingo on the emoji set, all on one language model, and prints a table of what they answer for
# docs/ablations/answers.md. About two hours on two idle cores.
#
#   bench/tables answers docs/ablations/answers.md bench/answers.sh DATA OUTPUT [TESSERA]
#
# DATA: the folder of the emoji set, with a folder `papers` of texts. An existing run is resumed or kept.
set -euo pipefail
data=$(realpath "$1") output=$(realpath -m "$2") tessera=$(realpath "${3:-build/tessera}")
here=$(cd "$(dirname "$0")/.." && pwd)
recipes=$here/recipes
exec 3>&1 >&2  # standard output gets only the table
mkdir -p "$output" && cd "$output"
for file in "$data"/*.tar.gz "$data"/*.jsonl "$data"/papers; do ln -sfn "$file" .; done

train() { # RECIPE RUN
  [ -e "runs/$2/model.safetensors" ] || "$tessera" train "$recipes/$1.toml" --output "runs/$2" --resume auto
}
[ -e tokenizer.json ] || "$tessera" tokens train papers/*.txt instruct-train.jsonl --size 2048 -o tokenizer.json
train lm/papers lm
[ -e runs/clip/model.safetensors ] ||
  "$tessera" train "$recipes/clip/emoji.toml" --data 'train-{000..003}.tar.gz' --val-data val-000.tar.gz \
    --output runs/clip --resume auto
train llava/emoji_tower tower
train llava/emoji_projector llava-1
train llava/emoji_both llava
train frozen/emoji frozen
train flamingo/emoji flamingo

for run in llava frozen flamingo; do
  for set in pair style concept; do
    "$tessera" eval --weights "runs/$run" --json \
      --data "conversations:instruct-test-$set.jsonl,test-$set-000.tar.gz" >"$run-$set.json"
  done
done
python3 - >&3 <<'PYTHON'
import json

rows = ["| model | examples | images | set | " + " | ".join(("all", "yes or no", "colour", "kind", "name")) + " |",
        "|---|---|---|---|---|---|---|---|---|"]
for run in ("llava", "frozen", "flamingo"):
    for split in ("pair", "style", "concept"):
        found = json.load(open(f"{run}-{split}.json"))
        for word, shots, images in (("", 0, "shown"), ("_2_shot", 2, "shown"), ("_4_shot", 4, "shown"), ("_blank", 0, "blank")):
            if "exact" + word not in found:
                continue
            values = [found.get(f"exact{kind}{word}") for kind in ("", "_yesno", "_colour", "_kind", "_name")]
            cells = ["–" if value is None else f"{100 * value:.1f} %" for value in values]
            rows.append(f"| {run} | {shots} | {images} | {split} | " + " | ".join(cells) + " |")
print("\n".join(rows))
PYTHON
