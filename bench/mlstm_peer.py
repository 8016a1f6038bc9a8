#!/usr/bin/env python3
"""The mLSTM cell against mlstm-kernels' CPU forms, in one run: rounds of ours and each of theirs alternate.

Batch 1, float32, the same number of threads. The peer's chunkwise form uses the fastest chunk size that divides the
tokens. Prints one JSON line per length, then two tables of medians over the rounds, in milliseconds: wall-clock time
(`ms`), and CPU time of all threads (`cpu_ms`), which a busy machine disturbs less but which includes waiting threads.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch
from mlstm_kernels.torch import get_mlstm_kernel

from rounds import head, row

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--program", required=True, help="mlstm_bench")
arguments.add_argument("--tokens", type=int, nargs="+", required=True)
arguments.add_argument("--heads", type=int, default=4)
arguments.add_argument("--dim", type=int, default=96)
arguments.add_argument("--rounds", type=int, default=7)
options = arguments.parse_args()
threads = int(os.environ.get("OMP_NUM_THREADS", "2"))
torch.set_num_threads(threads)
LONGEST_PARALLEL = 3136  # longer ones exceed most memories in backward, due to the matrix of all pairs
SLICE = 0.3  # seconds per form and round


def measure(function):
    """Median wall-clock milliseconds, and mean CPU milliseconds, over a slice."""
    times, cpu, begin = [], time.process_time(), time.perf_counter()
    while not times or time.perf_counter() - begin < SLICE:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3, (time.process_time() - cpu) / len(times) * 1e3


def ours(tokens):
    line = subprocess.run([options.program, "--json", "1", str(options.heads), str(tokens), str(options.dim)], check=True,
                          capture_output=True, text=True).stdout
    return json.loads(line)


class Peer:
    def __init__(self, tokens):
        shape = (1, options.heads, tokens, options.dim)
        self.inputs = [torch.randn(shape) for _ in range(3)]
        self.inputs += [torch.randn(shape[:3]), torch.empty(shape[:3]).uniform_(3, 6)]
        self.gradient = torch.randn(shape)

    def forward(self, kernel, settings):
        with torch.no_grad():
            kernel(*self.inputs, **settings)

    def both(self, kernel, settings):
        inputs = [x.requires_grad_() for x in self.inputs]
        out = kernel(*inputs, **settings)
        torch.autograd.grad(out, inputs, self.gradient)
        for x in inputs:
            x.requires_grad_(False)


def forms(peer, tokens):
    chunkwise = get_mlstm_kernel("chunkwise--native_autograd")
    sizes = [size for size in (28, 32, 49, 56, 64, 98, 112, 128, 196) if tokens % size == 0] or [tokens]
    best = min(sizes, key=lambda size: min(measure(lambda: peer.forward(chunkwise, {"chunk_size": size})) for _ in range(2)))
    yield "chunkwise--native_autograd", chunkwise, {"chunk_size": best}
    if tokens <= LONGEST_PARALLEL:
        yield "parallel--native_autograd", get_mlstm_kernel("parallel--native_autograd"), {}


results = []
for tokens in options.tokens:
    peer = Peer(tokens)
    found = {}
    candidates = list(forms(peer, tokens))
    for _ in range(options.rounds):
        for key, value in ours(tokens).items():
            found.setdefault("tessera", {}).setdefault(key, []).append(value)
        for name, kernel, settings in candidates:
            for part, function in (("forward", peer.forward), ("forward_backward", peer.both)):
                clock, cpu = measure(lambda: function(kernel, settings))
                found.setdefault(name, {}).setdefault(part + "_ms", []).append(clock)
                found[name].setdefault(part + "_cpu_ms", []).append(cpu)
    result = {"tokens": tokens, "heads": options.heads, "dim": options.dim, "threads": threads, "rounds": options.rounds}
    for name, parts in found.items():
        result[name] = {key: round(statistics.median(values), 3) for key, values in parts.items()}
    for name, _, settings in candidates:
        result[name].update(settings)
    print(json.dumps(result), flush=True)
    results.append(result)


def table(title, unit):
    print(f"\n{title}:\n")
    theirs = [f"`{form}--native_autograd`" for form in ("chunkwise", "parallel")]
    head("tokens", "forward", *theirs, "forward and backward", "chunkwise", "parallel")
    for result in results:
        cells = []
        for part in ("forward", "forward_backward"):
            ours = result["tessera"][part + unit]
            cells.append(f"{ours:.3g}")
            for form in ("chunkwise", "parallel"):
                peer = result.get(form + "--native_autograd")
                cells.append(f"{peer[part + unit]:.3g} ({peer[part + unit] / ours:.1f} times)" if peer else "")
        row(result["tokens"], *cells)


table("Milliseconds by the clock", "_ms")
table("Processor time in ms, all threads together", "_cpu_ms")
