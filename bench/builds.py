#!/usr/bin/env python3
"""Compares two builds of tessera in turns, for a change that must not cost speed: bench/builds.py BEFORE AFTER

BEFORE and AFTER are build folders, or programs. Every round measures BEFORE, AFTER and BEFORE again, so the table shows
the change next to the first build's own variation. Prints rows of Markdown. A case is KIND:MODEL:PRECISION:BATCH, such
as train:vil_tiny_patch16_224:bf16:8, and both builds must support it. --epoch RECIPE DATA measures `tessera train`
instead: an epoch, with validation, of a recipe that both builds can read.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from rounds import head, row, take_turns, tessera

CASES = [f"{kind}:{model}:{precision}:8" for kind in ("train", "infer")
         for model in ("deit3_small_patch16_224", "vil_tiny_patch16_224", "visionllama_small_patch16_224",
                       "illama_tiny_patch16_224")
         for precision in ("fp32", "bf16")]


def program(path):
    return str(path / "tessera" if path.is_dir() else path)


def precision_option(build, kind):
    """Older builds use the names --dtype, and images_per_s instead of images_per_second."""
    told = subprocess.run([build, "bench", kind, "--help"], check=True, capture_output=True, text=True).stdout
    return "precision" if "--precision" in told else "dtype"


def compare(what, precision, measure, before, after, rounds):
    """Prints a row of the table: `measure` returns images/s of a build."""
    found = take_turns({"before": lambda: measure(before), "after": lambda: measure(after), "again": lambda: measure(before)},
                       rounds, what)
    change = [100 * (a / statistics.mean((b, c)) - 1) for b, a, c in zip(*found.values())]
    itself = [100 * (c / b - 1) for b, c in zip(found["before"], found["again"])]
    row(what, precision, f"{statistics.median(found['before'] + found['again']):.1f}",
        f"{statistics.median(found['after']):.1f}", f"{statistics.median(change):+.1f} %",
        f"{statistics.median(itself):+.1f} % ({min(itself):+.1f} to {max(itself):+.1f})")


def bench_of(case, options):
    kind, model, precision, batch = case.split(":")

    def measure(build):
        line = tessera(build, kind, model=model, batch=batch, **{precision_option(build, kind): precision}, **options)
        return line["images_per_second" if "images_per_second" in line else "images_per_s"]

    return f"{kind} {model}", precision, measure


def epoch_of(recipe, data, threads):
    def measure(build):
        with tempfile.TemporaryDirectory() as folder:
            words = [build, "train", recipe, "--data", data, "--output", folder + "/run", "--set", "train.epochs=1",
                     f"train.threads={threads}"]
            start = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            lines = [json.loads(line) for line in pathlib.Path(folder, "run/metrics.jsonl").read_text().splitlines()]
            images = max(line["step"] for line in lines) * 128
            return images / (time.perf_counter() - start)

    return f"an epoch of {recipe}, its validation, start and report", "as it says", measure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated names; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=6, help="per measurement")
    parser.add_argument("--threads", type=int, default=0, help="0 = all cores")
    parser.add_argument("--epoch", nargs=2, metavar=("RECIPE", "DATA"), help="with batches of 128")
    given = parser.parse_args()
    before, after = program(given.before), program(given.after)
    cases = given.cases.split(",")
    for case in cases:
        if case.count(":") != 3 or case.split(":")[0] not in ("train", "infer"):
            sys.exit(f"bench/builds.py: case '{case}' must be train or infer:MODEL:PRECISION:BATCH")
    head("", "precision", "before, images/s", "after, images/s", "change", "before beside itself")
    if given.epoch:
        compare(*epoch_of(*given.epoch, given.threads), before, after, given.rounds)
        return
    for case in cases:
        compare(*bench_of(case, {"seconds": given.seconds, "threads": given.threads}), before, after, given.rounds)


main()
