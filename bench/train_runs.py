#!/usr/bin/env python3
"""Short training runs: their speed over processes, and how long they wait for data."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import rounds

HERE = pathlib.Path(__file__).parent
TOGETHER = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]
VIL = HERE.parent / "recipes" / "compare" / "vil.toml"


def peak_of_children(parent):
    """The most memory that a child of this process has had, in MB; 0 if there is none."""
    peak = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        except OSError:
            continue  # ended in between
        if int(status["PPid"]) == parent and "VmHWM" in status:
            peak = max(peak, int(status["VmHWM"].split()[0]) / 1024)
    return peak


def train(words, recipe, data, steps, *settings, peaks=None):
    """Runs this command; returns the metrics.jsonl lines of kind "train" without the first, which includes the start. Adds the
    peak memory of a process to `peaks`."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/errors", "w+") as errors:
        started = subprocess.Popen(
            [*words, "train", recipe, "--data", data, "--output", f"{folder}/run", "--set", f"train.steps={steps}",
             f"train.log_every={steps // 4}", "train.eval_every=0", "schedule.warmup_epochs=0", *settings],
            stdout=subprocess.DEVNULL, stderr=errors, text=True)
        peak = 0
        while started.poll() is None:
            if peaks is not None:
                peak = max(peak, peak_of_children(started.pid))
            time.sleep(0.2)
        if peaks is not None:
            peaks.append(peak)
        if started.returncode != 0:
            errors.seek(0)
            lines = errors.read().strip().splitlines()
            sys.exit(next((line for line in lines if line.startswith("tessera:")), lines[-1]))  # mpirun adds lines of its own
        lines = map(json.loads, pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == "train"][1:]


def mean(lines, key):
    return statistics.mean(line[key] for line in lines)


def processes(options):
    def speed(threads, *command):
        lines = train(command, VIL, options.data, 80, f"train.threads={threads}")
        return mean(lines, "images_per_second")

    two = "two processes of one thread"
    ways = {"one process of two threads": lambda: speed(2, options.program), two: lambda: speed(1, *TOGETHER, options.program)}
    if options.before:
        ways[f"{two}, the version before"] = lambda: speed(1, *TOGETHER, options.before)
    results = rounds.take_turns(ways, options.rounds, "processes")
    rounds.head("", "images/s", "of two processes")
    for name, found in results.items():
        rounds.row(name, f"{statistics.median(found):.0f}", f"{rounds.times_faster(found, results[two]):.3f}")
    print(json.dumps(results))


def zero(options):
    peaks = {}

    def speed(stage):
        lines = train([*TOGETHER, options.program], HERE / "zero.toml", "shapes:train=512,val=16,size=64", 8,
                      f"parallel.zero={stage}", peaks=peaks.setdefault(stage, []))
        return mean(lines, "images_per_second")

    ways = {stage: lambda stage=stage: speed(stage) for stage in (0, 1, 2, 3)}
    results = rounds.take_turns(ways, options.rounds, "zero")
    rounds.head("parallel.zero", "images/s", "of stage 0", "peak memory of a process, MB")
    for stage, speeds in results.items():
        rounds.row(stage, f"{statistics.median(speeds):.2f}", f"{rounds.times_faster(speeds, results[0]):.3f}",
                   f"{statistics.median(peaks[stage]):.0f}")
    print(json.dumps({"images_per_second": results, "peak_mb": peaks}))


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
command.add_argument("--before", help="tessera of another version, in the same rounds")
command.set_defaults(run=processes)
command = commands.add_parser("zero", help="two processes that divide the optimiser's state, against two that do not")
command.set_defaults(run=zero)
command = commands.add_parser("waiting", help="the share of the time spent waiting for data")
command.add_argument("data")
command.add_argument("photos")
command.set_defaults(run=waiting)
chosen = arguments.parse_args()
chosen.run(chosen)
