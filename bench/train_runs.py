#!/usr/bin/env python3
"""Short training runs: their speed over processes, and how long they wait for data."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import rounds

HERE = pathlib.Path(__file__).parent
VIL = HERE.parent / "recipes" / "compare" / "vil.toml"


def train(words, recipe, data, steps, *settings):
    """Runs this command; returns the metrics.jsonl lines of kind "train" without the first, which includes the start."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*words, "train", recipe, "--data", data, "--output", f"{folder}/run", "--set", f"train.steps={steps}",
             f"train.log_every={steps // 4}", "train.eval_every=0", "schedule.warmup_epochs=0", *settings],
            capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr.strip().splitlines()[-1])
        lines = map(json.loads, pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == "train"][1:]


def mean(lines, key):
    return statistics.mean(line[key] for line in lines)


def processes(options):
    def speed(threads, *words):
        lines = train([*words, options.program], VIL, options.data, 80, f"train.threads={threads}")
        return mean(lines, "images_per_second")

    together = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]
    ways = {"one process of two threads": lambda: speed(2), "two processes of one thread": lambda: speed(1, *together)}
    results = rounds.take_turns(ways, options.rounds, "processes")
    one, two = results.values()
    rounds.head("", "images/s", "times")
    for name, times in zip(ways, ("", f"{rounds.times_faster(two, one):.2f}")):
        rounds.row(name, f"{statistics.median(results[name]):.0f}", times)
    print(json.dumps({"ratio": round(rounds.times_faster(two, one), 3), **results}))


def waiting(options):
    result = {}
    rounds.head("", "images/s", "waiting for data")
    for name, recipe, data, steps in (("Vision-LSTM of 409 k on CIFAR-10", VIL, options.data, 200),
                                      ("DeiT-III S on JPEGs of 500x375 at 224", HERE / "waiting.toml", options.photos, 20)):
        lines = train([options.program], recipe, data, steps)
        speed, share = mean(lines, "images_per_second"), mean(lines, "wait_share")
        rounds.row(name, f"{speed:.1f}", f"{100 * share:.3f} %")
        result[name] = {"images_per_second": round(speed, 1), "wait_share": share}
    print(json.dumps(result))


arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--program", required=True, help="tessera")
arguments.add_argument("--rounds", type=int, default=5)
commands = arguments.add_subparsers(required=True)
command = commands.add_parser("processes", help="two processes of one thread against one of two")
command.add_argument("data")
command.set_defaults(run=processes)
command = commands.add_parser("waiting", help="the share of the time spent waiting for data")
command.add_argument("data")
command.add_argument("photos")
command.set_defaults(run=waiting)
chosen = arguments.parse_args()
chosen.run(chosen)
