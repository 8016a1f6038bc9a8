"""What the benchmarks share: `tessera bench` as a function, ways that take turns, rows of Markdown."""

import json
import statistics
import subprocess
import sys
import time


def tessera(program, kind, **options):
    """The JSON line of `tessera bench KIND`; options as on the command line, with _ for -."""
    command = [program, "bench", kind, "--json"]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def seconds(way, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        way()
    return (time.perf_counter() - start) / repeats


def take_turns(ways, rounds, what):
    """Calls every way once a round: {name: results, one a round}."""
    results = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            results[name].append(way())
        print(f"{what}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return results


def times_faster(ours, theirs):
    """The median over the rounds of how many times as fast we were."""
    return statistics.median(a / b for a, b in zip(ours, theirs))


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)
