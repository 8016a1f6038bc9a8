"""Shared by the benchmarks: `tessera bench` as a function, alternating implementations, rows of Markdown."""

import json
import os
import statistics
import subprocess
import sys
import time


def tessera(program, kind, **options):
    """Returns the JSON line of `tessera bench KIND`; options as on the command line, with _ for -."""
    command = [program, "bench", kind, "--json"]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def seconds(way, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        way()
    return (time.perf_counter() - start) / repeats


def timed(step, seconds):
    """Returns the median seconds of a step, after one to warm up; the caller counts images."""
    step()
    times = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 2:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run_watched(command):
    """Runs a command and drops its output; returns seconds and peak memory in MB. Samples the running child, because the
    kernel's own figure for an ended child (ru_maxrss) includes the memory of its parent."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        try:
            with open(f"/proc/{process.pid}/status") as status:
                peak = max([peak] + [int(line.split()[1]) for line in status if line.startswith("VmHWM")])
        except ProcessLookupError:
            pass  # ended in between
        time.sleep(0.005)
    took = time.perf_counter() - start
    if process.wait():
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return took, peak / 1024


def take_turns(ways, rounds, what):
    """Runs every implementation once per round: {name: results, one per round}."""
    results = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            results[name].append(way())
        print(f"{what}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return results


def times_faster(ours, theirs):
    """Returns the median of our speedup over the rounds."""
    return statistics.median(a / b for a, b in zip(ours, theirs))


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)
