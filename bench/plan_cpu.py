#!/usr/bin/env python3
"""Plans of four models on this machine next to measured trainings: median step and resident peak of several runs.

    bench/plan_cpu.py --program build/tessera --output runs/plan-cpu
    bench/plan_cpu.py --program build/tessera --output runs/plan-cpu2 --processes 2 --threads 1

Prints rows of Markdown for docs/scale.md. Each model is planned by a measured block, and by the guess without one. The peak is that
of the fullest process.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys

IMAGES = ["data.path=shapes:train=64,val=4", "preprocess.size=224", "augment.crop=centre", "train.batch_size=4"]
LLAMA = """[task]
name = "language"
length = 128
[task.language]
dim = 640
depth = 12
heads = 10
hidden = 1728
context = 128
[model]
name = "none"
[train]
steps = 4
batch_size = 4
"""
MODELS = {
    "ViT-S": ("recipes/demo.toml", IMAGES, 'model.name="deit3_small_patch16_224"'),
    "ViL-T": ("recipes/demo.toml", IMAGES, 'model.name="vil_tiny_patch16_224"'),
    "DARL, 256 wide": ("recipes/darl/pretrain_large.toml",
                       IMAGES + ["model.dim=256", "model.heads=4", "train.precision=fp32", "schedule.warmup_epochs=0"], None),
    "LLaMA, 60 M": (None, [], None),
}


def recipe_of(name, options):
    path = options.output / (name.split(",")[0] + ".toml")
    threads = [f"train.threads={options.threads}"]
    if name.startswith("LLaMA"):
        text = options.output / "text.txt"
        text.write_text("\n\n".join(f"{i} and {i + 1} are {2 * i + 1}; " * 40 for i in range(64)))
        path.write_text(LLAMA)
        return path, [f"data.path=text:{text}", "data.val_share=0.1"] + threads
    base, settings, model = MODELS[name]
    lines = [f'base = "{(pathlib.Path(base)).resolve()}"']
    lines += ["[model]", model] if model else []
    if model and "demo" in base:
        lines = [line for line in pathlib.Path(base).read_text().splitlines()
                 if not line.startswith(("dim =", "depth =", "patch_size =", "drop_path"))]
        lines = [model.replace("model.", "") if line.startswith("name = \"vil\"") else line for line in lines]
    path.write_text("\n".join(lines) + "\n")
    return path, settings + threads


def launch(options, command):
    """Runs the command in all processes. Returns the resident peak of the fullest one in bytes."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    started = []
    for rank in range(options.processes):
        launched = {} if options.processes == 1 else {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": options.processes, "LOCAL_WORLD_SIZE": options.processes,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**os.environ, **{key: str(value) for key, value in launched.items()}}
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    peaks = []
    for program in started:
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        if program.returncode:
            sys.exit(f"{' '.join(map(str, command))}: exit code {program.returncode}")
        peaks.append(usage.ru_maxrss * 1024)
    return max(peaks)


def plan(options, recipe, settings, *more):
    env = {**os.environ, "XDG_CACHE_HOME": str(options.output / "cache")}
    cluster = "cpu" if options.processes == 1 else options.output / "cluster.toml"
    page = subprocess.run([options.program, "plan", recipe, "--cluster", cluster, "--runnable", "--json", "--keep", "1000", *more,
                           "--set", *settings], check=True, capture_output=True, text=True, env=env).stdout
    # Data parallel without recomputation or accumulation, as the recipe trains.
    return next(p for p in json.loads(page)["plans"] if p["layout"]["recompute"] == "none"
                and p["layout"]["data"] == options.processes and p["layout"]["microbatch"] * options.processes == 4)


def layout_settings(layout):
    """Returns the settings of a data parallel layout."""
    return [f"parallel.{'shard' if layout['zero'] else 'replicate'}={layout['data']}", f"parallel.zero={layout['zero']}"]


def train(options, recipe, settings, name, number):
    """Returns the median seconds of a step and the fullest process's resident peak in bytes."""
    run = options.output / f"{name.split(',')[0]}-{number}"
    peak = launch(options, [options.program, "train", recipe, "--output", run, "--set", *settings, "train.epochs=0",
                            "train.steps=4", "train.log_every=1", "train.eval_every=1000"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(run)
    ends = [line["seconds"] for line in lines if line["kind"] == "train"]
    return statistics.median(b - a for a, b in zip(ends[:-1], ends[1:])), peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.processes > 1:
        launch(options, [options.program, "doctor", "--cluster", "--output", options.output / "cluster.toml"])
    print("| model | guessed step | planned step | measured step | error | planned memory | measured peak | error |\n"
          "|---|---|---|---|---|---|---|---|")
    for name in MODELS:
        recipe, settings = recipe_of(name, options)
        guess = plan(options, recipe, settings)
        block = plan(options, recipe, settings, "--measure")
        settings += layout_settings(block["layout"])
        runs = [train(options, recipe, settings, name, i) for i in range(options.runs)]
        seconds, peak = (statistics.median(values) for values in zip(*runs))
        print(f"| {name} | {guess['seconds']:.2f} s | {block['seconds']:.2f} s | {seconds:.2f} s "
              f"| {100 * (block['seconds'] / seconds - 1):+.0f} % | {block['memory_bytes'] / 1e6:.0f} MB | {peak / 1e6:.0f} MB "
              f"| {100 * (block['memory_bytes'] / peak - 1):+.0f} % |", flush=True)


if __name__ == "__main__":
    main()
