#!/usr/bin/env python3
"""Samples to one training loss at a quarter and at four times the measured critical batch.

    bench/noise_scale.py --program build/tessera --data CIFAR10 --output runs/noise

The critical batch is the mean noise scale of the recipe's run until it reaches the loss. Both batches train with several learning
rates, and the least number of samples counts. The formula S(B) = S_min (1 + B / B_noise) gives a factor of 5 / 1.25 = 4.
"""
import argparse
import json
import pathlib
import subprocess

RECIPE = pathlib.Path(__file__).parent.parent / "recipes/scaling/noise_cifar10.toml"
LINE = 1024  # samples in a line of metrics.jsonl
SMOOTH = 4  # lines in a mean


def train(options, name, batch, rate, samples):
    run = options.output / name
    if not (run / "report.html").exists():
        settings = [f"train.batch_size={batch}", f"optimiser.lr={rate}", f"train.steps={samples // batch}",
                    f"train.log_every={max(1, LINE // batch)}", f"train.threads={options.threads}"]
        subprocess.run([options.program, "train", RECIPE, "--data", options.data, "--output", run, "--set", *settings],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "train"]


def reached(lines, batch, loss):
    """The samples until the mean of SMOOTH lines is at most the loss, or infinity, and the lines until then."""
    for end in range(SMOOTH, len(lines) + 1):
        if sum(line["loss"] for line in lines[end - SMOOTH:end]) / SMOOTH <= loss:
            return lines[end - 1]["step"] * batch, lines[:end]
    return float("inf"), lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--loss", type=float, default=1.85)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    samples, lines = reached(train(options, "measure", 64, 0.3, 64 * 400), 64, options.loss)
    scales = [line["noise_scale"] for line in lines if "noise_scale" in line]
    critical = sum(scales) / len(scales)
    print(f"critical batch {critical:.0f}: mean noise scale of {samples} samples until a loss of {options.loss}", flush=True)
    print("| batch | learning rate | samples to the loss |\n|---|---|---|")
    best = {}
    quarter, fourfold = (max(2, round(critical * factor / 2) * 2) for factor in (0.25, 4))
    for batch, rates, most in ((quarter, (0.075, 0.15, 0.3), 40000), (fourfold, (0.3, 0.6, 1.2), 100000)):
        for rate in rates:
            lines = train(options, f"batch-{batch}-rate-{rate}", batch, rate, most)
            needed, _ = reached(lines, batch, options.loss)
            best[batch] = min(best.get(batch, float("inf")), needed)
            print(f"| {batch} | {rate} | {needed} |", flush=True)
    print(f"factor {best[fourfold] / best[quarter]:.2f}; the formula gives 4")


if __name__ == "__main__":
    main()
