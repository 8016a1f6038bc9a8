#!/usr/bin/env python3
"""Rates of `tessera doctor --cluster` against a plain loop over the same collective of torch.distributed on Gloo, in turns.

  bench/exchanges.py BUILD

Prints a table and a line of JSON. TESSERA_BENCH_PROCESSES (2) and TESSERA_BENCH_ROUNDS (5). Needs PyTorch with Gloo.
"""
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import rounds

SIZES = [1 << 20, 1 << 23, 1 << 26]
SECONDS = 0.2  # a measurement


def calls_of(distributed, torch, size):
    """Returns a function by kind, each a collective whose larger tensor has `size` bytes."""
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    rows = size // 4 // processes
    own, whole, into = torch.ones(rows), torch.ones(rows * processes), torch.ones(rows * processes)

    def ring():
        sent = distributed.isend(whole, (rank + 1) % processes)
        distributed.recv(into, (rank - 1) % processes)
        sent.wait()

    return {"sum": lambda: distributed.all_reduce(into),
            "gather": lambda: distributed.all_gather_into_tensor(into, own),
            "scatter": lambda: distributed.reduce_scatter_tensor(own, whole),
            "exchange": lambda: distributed.all_to_all_single(into, whole),
            "ring": ring,
            "broadcast": lambda: distributed.broadcast(into, 0)}


def loop():
    """One process of the plain loop. The first one prints the median seconds by kind and size."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    found = []
    for size in SIZES:
        for kind, call in calls_of(distributed, torch, size).items():
            start = time.perf_counter()
            call()
            first = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            distributed.all_reduce(first)
            times = []
            for _ in range(int(min(200, max(3, SECONDS * distributed.get_world_size() / first.item())))):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            mean = torch.tensor([statistics.median(times)], dtype=torch.float64)
            distributed.all_reduce(mean)
            found.append([kind, size, mean.item() / distributed.get_world_size()])
    if distributed.get_rank() == 0:
        print(json.dumps(found))


def run(processes, command):
    """Starts the command in all processes by torchrun's variables. Returns what the first one prints."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    started = []
    for rank in range(processes):
        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes,
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        started.append(subprocess.Popen(command, env={**os.environ, **{key: str(value) for key, value in env.items()}}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"{' '.join(map(str, command))}: exit codes {[process.returncode for process in started]}")
    return json.loads(printed[0])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program, processes = pathlib.Path(sys.argv[1], "tessera"), int(os.environ.get("TESSERA_BENCH_PROCESSES", "2"))
    with tempfile.TemporaryDirectory() as folder:
        doctor = [program, "doctor", "--cluster", "--json", "-o", f"{folder}/cluster.toml"]
        ways = {"ours": lambda: [[one["kind"], one["bytes"], one["seconds"]] for one in run(processes, doctor)["exchanges"]],
                "loop": lambda: run(processes, [sys.executable, __file__, "--loop"])}
        found = rounds.take_turns(ways, int(os.environ.get("TESSERA_BENCH_ROUNDS", "5")), f"exchanges, {processes} processes")
    medians = {way: {(kind, size): statistics.median(dict(((k, s), t) for k, s, t in one)[kind, size] for one in all_rounds)
                     for kind, size, _ in all_rounds[0]} for way, all_rounds in found.items()}
    rounds.head("exchange", "bytes", "doctor, GB/s", "plain loop, GB/s", "doctor / loop")
    for (kind, size), seconds in medians["loop"].items():
        ours = medians["ours"][kind, size]
        rounds.row(kind, size, f"{size / ours / 1e9:.2f}", f"{size / seconds / 1e9:.2f}", f"{seconds / ours:.2f}")
    print(json.dumps({way: [[*key, value] for key, value in values.items()] for way, values in medians.items()}))


if __name__ == "__main__":
    loop() if sys.argv[1:] == ["--loop"] else main()
