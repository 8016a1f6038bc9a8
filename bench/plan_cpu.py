#!/usr/bin/env python3
"""Plans of four models on this machine next to measured trainings: median step and resident peak of several runs.

    bench/plan_cpu.py --program build/tessera --output runs/plan-cpu

Prints rows of Markdown for docs/scale.md. Each model is planned by a measured block, and by the guess without one.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

IMAGES = ["data.path=shapes:train=64,val=4", "preprocess.size=224", "augment.crop=centre", "train.batch_size=4"]
MODELS = {
    "ViT-S": ("recipes/demo.toml", IMAGES, 'model.name="deit3_small_patch16_224"'),
    "ViL-T": ("recipes/demo.toml", IMAGES, 'model.name="vil_tiny_patch16_224"'),
    "DARL, 256 wide": ("recipes/darl/pretrain_large.toml",
                       IMAGES + ["model.dim=256", "model.heads=4", "train.precision=fp32", "schedule.warmup_epochs=0"], None),
}


def recipe_of(name, options):
    base, settings, model = MODELS[name]
    path = options.output / (name.split(",")[0] + ".toml")
    lines = [f'base = "{(pathlib.Path(base)).resolve()}"']
    lines += ["[model]", model] if model else []
    if model and "demo" in base:
        lines = [line for line in pathlib.Path(base).read_text().splitlines()
                 if not line.startswith(("dim =", "depth =", "patch_size =", "drop_path"))]
        lines = [model.replace("model.", "") if line.startswith("name = \"vil\"") else line for line in lines]
    path.write_text("\n".join(lines) + "\n")
    return path, settings + [f"train.threads={options.threads}"]


def plan(options, recipe, settings, *more):
    env = {**os.environ, "XDG_CACHE_HOME": str(options.output / "cache")}
    page = subprocess.run([options.program, "plan", recipe, "--cluster", "cpu", "--runnable", "--json", *more, "--set", *settings],
                          check=True, capture_output=True, text=True, env=env).stdout
    plans = json.loads(page)["plans"]
    # One process without recomputation or accumulation, as the recipe trains.
    return next(p for p in plans if p["layout"]["recompute"] == "none")


def train(options, recipe, settings, name, number):
    run = options.output / f"{name.split(',')[0]}-{number}"
    program = subprocess.Popen([options.program, "train", recipe, "--output", run, "--set", *settings, "train.epochs=0",
                                "train.steps=4", "train.log_every=1", "train.eval_every=1000"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ends = [line["seconds"] for line in lines if line["kind"] == "train"]
    return statistics.median(b - a for a, b in zip(ends[:-1], ends[1:])), usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    print("| model | guessed step | planned step | measured step | error | planned memory | measured peak | error |\n"
          "|---|---|---|---|---|---|---|---|")
    for name in MODELS:
        recipe, settings = recipe_of(name, options)
        guess = plan(options, recipe, settings)
        block = plan(options, recipe, settings, "--measure")
        runs = [train(options, recipe, settings, name, i) for i in range(options.runs)]
        seconds, peak = (statistics.median(values) for values in zip(*runs))
        print(f"| {name} | {guess['seconds']:.2f} s | {block['seconds']:.2f} s | {seconds:.2f} s "
              f"| {100 * (block['seconds'] / seconds - 1):+.0f} % | {block['memory_bytes'] / 1e6:.0f} MB | {peak / 1e6:.0f} MB "
              f"| {100 * (block['memory_bytes'] / peak - 1):+.0f} % |", flush=True)


if __name__ == "__main__":
    main()
