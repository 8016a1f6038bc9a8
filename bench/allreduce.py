#!/usr/bin/env python3
"""All-reduce between processes of this machine: `tessera doctor --cluster` against MPI_Allreduce of a plain C program. Needs mpicc
(Debian: libopenmpi-dev). Prints a table and a line of JSON.

  bench/allreduce.py BUILD
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import rounds

if len(sys.argv) != 2:
    sys.exit(__doc__)
program, here = pathlib.Path(sys.argv[1], "tessera"), pathlib.Path(__file__).parent
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(processes, *words):
    return subprocess.run(["mpirun", "-n", str(processes), "--oversubscribe", "--bind-to", "none", *map(str, words)], check=True,
                          capture_output=True, text=True).stdout


def ours(processes, folder):
    measured = json.loads(run(processes, program, "doctor", "--cluster", "--json", "-o", f"{folder}/cluster.toml"))
    return {one["bytes"]: one["seconds"] for one in measured["exchanges"] if one["kind"] == "sum"}


def theirs(processes, folder):
    return {int(size): float(seconds) for size, seconds in (line.split() for line in run(processes, f"{folder}/allreduce").split("\n")
                                                             if line)}


result = {}
rounds.head("processes", "bytes", "Gloo, ms", "MPI_Allreduce, ms", "times")
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["mpicc", "-O2", "-o", f"{folder}/allreduce", here / "allreduce.c"], check=True)
    for processes in (2, 4):
        ways = {"ours": lambda n=processes: ours(n, folder), "mpi": lambda n=processes: theirs(n, folder)}
        found = rounds.take_turns(ways, int(os.environ.get("TESSERA_BENCH_ROUNDS", "5")), f"allreduce, {processes} processes")
        for size in found["mpi"][0]:
            ours_ms, mpi_ms = ([1e3 * one[size] for one in found[way]] for way in ("ours", "mpi"))
            rounds.row(processes, size, f"{statistics.median(ours_ms):.3f}", f"{statistics.median(mpi_ms):.3f}",
                       f"{rounds.times_faster(mpi_ms, ours_ms):.2f}")
            result[f"{processes} x {size}"] = {"ours_ms": ours_ms, "mpi_ms": mpi_ms}
print(json.dumps(result))
