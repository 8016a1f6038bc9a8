#!/usr/bin/env python3
"""Compares every task on a GPU with the same on the CPU; prints a row for each and ends with 1 where one differs.

  tests/gpu/compare.py --program BUILD/tessera --output FOLDER [NAME ...]

A case trains a recipe of the built-in images for a few steps in fp32 on either device: the losses have to be equal to --loss, and
what `tessera eval` measures of the CPU's weights to --metric. Then the GPU trains in bf16, where losses are equal to --bf16.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 4
LONGEST = 120  # seconds of one command
SMALL = ["data.path=shapes:train=64,val=32,size=32", "train.batch_size=16", "train.eval_batch_size=16"]
TEXTS = ["data.path=shapes:task=text,size=64,train=64,val=16", "train.batch_size=16", "train.eval_batch_size=16"]
OBJECTS = ["data.path=shapes:task=detect,train=16,val=8,size=128", "train.batch_size=4", "train.eval_batch_size=4"]
REGIONS = ["data.path=shapes:task=segment,train=64,val=32,size=64", "train.batch_size=16", "train.eval_batch_size=16"]


def family(name, *sizes):
    return ("shapes/visionllama_plain.toml", [*SMALL, f"model.name={name}", *sizes])


# name: (recipe, settings, settings for the GPU alone). What random numbers of the device decide (drop path, masks) is switched off where it can be.
CASES = {
    "visionllama": ("shapes/visionllama_plain.toml", SMALL),
    "vit": family("vit"),
    "vil": family("vil"),
    "lamb": family("vit", "optimiser.name=lamb"),
    "lars": family("vit", "optimiser.name=lars"),
    "sgd": family("vit", "optimiser.name=sgd"),
    "offload": (*family("vil"), ["parallel.offload=optimiser"]),
    "illama": ("compare/illama.toml", [*SMALL, "model.classes=10"]),
    "mae": ("shapes/mae.toml", SMALL),
    "darl": ("shapes/darl_pretrain.toml", SMALL),
    "dit": ("shapes/dit_llama.toml", SMALL),
    "sit": ("shapes/sit_llama.toml", SMALL),
    "vae": ("shapes/vae.toml", ["data.path=shapes:train=64,val=32,size=64", "train.eval_batch_size=16"]),
    "segment": ("upernet/shapes.toml", REGIONS),
    "mask_rcnn": ("mask_rcnn/shapes.toml", OBJECTS),
    "vitdet": ("vitdet/shapes.toml", OBJECTS),
    "detr": ("detr/shapes.toml", OBJECTS),
    "clip": ("clip/shapes.toml", TEXTS),
    "siglip": ("siglip/shapes.toml", TEXTS),
    "coca": ("coca/shapes.toml", TEXTS),
    "simvlm": ("simvlm/shapes.toml", TEXTS),
}


class Failed(Exception):
    pass


def run(program, *words):
    try:
        done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"not done after {LONGEST} s: {' '.join(map(str, late.cmd))}") from late
    if done.returncode != 0:
        raise Failed((done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1])
    return done.stdout


def train(options, folder, recipe, settings, device, precision):
    run(options.program, "train", ROOT / "recipes" / recipe, "--output", folder, "--device", device, "--set", *settings,
        f"train.steps={STEPS}", f"train.precision={precision}", f"train.threads={options.threads}", "train.log_every=1",
        "train.eval_every=0", "schedule.warmup_epochs=0", "schedule.warmup_steps=0", "train.seed=1")
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


def evaluated(options, folder, device):
    found = json.loads(run(options.program, "eval", "--weights", folder, "--device", device, "--threads", options.threads,
                           "--json"))
    return {key: value for key, value in found.items()
            if isinstance(value, float) and not key.endswith("per_second") and "seconds" not in key}


def apart(found, wanted):
    """The largest difference in relation to the value, or in itself below 1."""
    if len(found) != len(wanted):
        return math.inf
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in zip(found, wanted)), default=math.inf)


def compare(options, name):
    recipe, settings, *more = CASES[name]
    there = [*settings, *(more[0] if more else [])]
    folder = options.output / name
    losses = train(options, folder / "cpu", recipe, settings, options.devices[0], "fp32")
    found = train(options, folder / "gpu", recipe, there, options.devices[1], "fp32")
    loss = apart(found, losses)
    bf16 = apart(train(options, folder / "gpu-bf16", recipe, there, options.devices[1], "bf16"), losses)
    wanted = evaluated(options, folder / "cpu", options.devices[0])
    measured = evaluated(options, folder / "cpu", options.devices[1])
    metric = apart([measured.get(key, math.inf) for key in wanted], list(wanted.values()))
    good = loss <= options.loss and bf16 <= options.bf16 and metric <= options.metric
    return good, f"loss {loss:.1e}  bf16 {bf16:.1e}  metrics {metric:.1e} ({len(wanted)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=0, help="of each run, 0 = all cores")
    parser.add_argument("--devices", nargs=2, default=["cpu", "cuda"])
    parser.add_argument("--loss", type=float, default=2e-3)
    parser.add_argument("--bf16", type=float, default=1e-1)
    parser.add_argument("--metric", type=float, default=2e-2)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    options = parser.parse_args()
    failures = 0
    for name in options.names or CASES:
        began = time.monotonic()
        try:
            good, words = compare(options, name)
        except Failed as failure:
            good, words = False, str(failure)
        failures += not good
        print(f"{name:12} {'ok    ' if good else 'DIFFER'} {words}  {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
