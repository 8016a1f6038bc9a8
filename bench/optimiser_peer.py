#!/usr/bin/env python3
"""One update of a ViT-B's 86 M float32 parameters: ours against PyTorch's and timm's, in one run.

Rounds alternate: our program for some seconds, then theirs. Theirs is `clip_grad_norm_`, fused `torch.optim.AdamW` in
timm's two groups and timm's ModelEmaV2; and timm's Lamb. Prints a table of median milliseconds and a line of JSON;
`ratio` is theirs over ours.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import time

import timm
import torch
from timm.optim import Lamb
from timm.optim._param_groups import param_groups_weight_decay
from timm.utils import ModelEmaV2

import rounds

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--program", required=True, help="optimiser_bench")
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--seconds", type=float, default=8)
options = arguments.parse_args()

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
model = timm.create_model("vit_base_patch16_224")
parameters = list(model.parameters())
for parameter in parameters:
    parameter.grad = torch.randn_like(parameter)
average = ModelEmaV2(model, decay=0.9999)
adamw = torch.optim.AdamW(param_groups_weight_decay(model, 0.05), lr=1e-6, fused=True)
lamb = Lamb(param_groups_weight_decay(model, 0.05), lr=1e-6)


def step():
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    adamw.step()
    average.update(model)


def median_ms(work, seconds):
    work()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


ours = {"norm + adamw + ema": [], "lamb": []}
theirs = {"norm + adamw + ema": [], "lamb": []}
for _ in range(options.rounds):
    output = subprocess.run([options.program, str(options.seconds)], check=True, capture_output=True, text=True).stdout
    for name, times in ours.items():
        times.append(float(re.search(rf"^{re.escape(name)} +([0-9.]+) ms", output, re.MULTILINE).group(1)))
    theirs["norm + adamw + ema"].append(median_ms(step, options.seconds))
    theirs["lamb"].append(median_ms(lamb.step, options.seconds))

peers = {"norm + adamw + ema": "`clip_grad_norm_`, fused `AdamW`, `ModelEmaV2`", "lamb": "timm's `Lamb`"}
result = {"parameters": sum(p.numel() for p in parameters), "threads": torch.get_num_threads(),
          "torch": torch.__version__, "timm": timm.__version__}
rounds.head("", "Tessera", f"PyTorch {torch.__version__}, timm {timm.__version__}", "times")
for name, times in ours.items():
    mine, peer = statistics.median(times), statistics.median(theirs[name])
    result[name] = {"ours_ms": round(mine, 1), "theirs_ms": round(peer, 1), "ratio": round(peer / mine, 2)}
    rounds.row(name, f"{mine:.1f} ms", f"{peer:.1f} ms: {peers[name]}", f"{peer / mine:.2f}")
print(json.dumps(result))
