#!/usr/bin/env python3
"""The loader against timm with Pillow, on the same files, one process and one thread each, in one run.

Passes over the images alternate: ours, theirs, ours, … Theirs is timm's ImageDataset with timm's training transform
(random resized crop, bicubic, to 224; flip; to tensor; normalise), once as the bare transform without batches and once
through a DataLoader without workers. Needs timm and torchvision. Prints one JSON line, with `ratio` relative to the
faster one, and a table.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import PIL
import timm
import torch
import torchvision
from PIL import features
from timm.data import ImageDataset, create_transform

from rounds import head, row

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--program", required=True, help="loader_bench")
arguments.add_argument("--folder", required=True, help="ImageFolder to read")
arguments.add_argument("--rounds", type=int, default=10)
arguments.add_argument("--decode", default="exact")
options = arguments.parse_args()

torch.set_num_threads(1)
transform = create_transform(224, is_training=True, use_prefetcher=False, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3),
                             hflip=0.5, color_jitter=None, auto_augment=None, interpolation="bicubic", re_prob=0.0,
                             mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
dataset = ImageDataset(options.folder, transform=transform)
loader = torch.utils.data.DataLoader(dataset, batch_size=32, num_workers=0)


def time_transform():
    start, cpu = time.perf_counter(), time.process_time()
    for index in range(len(dataset)):
        picture, _ = dataset[index]
        assert picture.shape == (3, 224, 224)
    return time.perf_counter() - start, time.process_time() - cpu


def time_loader():
    start, cpu = time.perf_counter(), time.process_time()
    count = sum(len(labels) for _, labels in loader)
    assert count == len(dataset)
    return time.perf_counter() - start, time.process_time() - cpu


ours = subprocess.Popen([options.program, "serve", options.folder, options.decode], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, text=True)


def time_ours():
    ours.stdin.write("pass\n")
    ours.stdin.flush()
    answer = ours.stdout.readline()
    if not answer:
        sys.exit("data_peer: loader_bench ended early")
    passed = json.loads(answer)
    assert passed["images"] == len(dataset), (passed, len(dataset))
    return passed["seconds"], passed["cpu_seconds"]


rounds = []
for number in range(options.rounds + 1):  # the first warms up
    rounds.append({"ours": time_ours(), "transform": time_transform(), "loader": time_loader()})
ours.stdin.close()
ours.wait()
rounds = rounds[1:]


def rate(side, clock=0):
    return round(len(dataset) / statistics.median(r[side][clock] for r in rounds), 1)


def ratios(side, clock=0):
    return sorted(r[side][clock] / r["ours"][clock] for r in rounds)


faster = "transform" if rate("transform") > rate("loader") else "loader"
sizes = [os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(options.folder) for name in names]
names = f"timm {timm.__version__} with Pillow {PIL.__version__}"
print(json.dumps({
    "benchmark": "loader, one thread: 500x375 JPEG, random resized crop 224, flip, normalise",
    "images": len(dataset),
    "mean_bytes": round(statistics.mean(sizes)),
    "rounds": len(rounds),
    "decode": options.decode,
    "images_per_second": rate("ours"),
    "peer_transform_images_per_second": rate("transform"),
    "peer_loader_images_per_second": rate("loader"),
    "ratio": round(statistics.median(ratios(faster)), 2),
    "ratio_lowest": round(ratios(faster)[0], 2),
    "ratio_highest": round(ratios(faster)[-1], 2),
    "ratio_of_cpu_time": round(statistics.median(ratios(faster, 1)), 2),
    "ratio_to_peer_loader": round(statistics.median(ratios("loader")), 2),
    "images_per_cpu_second": rate("ours", 1),
    "peer_transform_images_per_cpu_second": rate("transform", 1),
    "peer": f"timm {timm.__version__}, Pillow {PIL.__version__} (libjpeg-turbo "
            f"{features.version_feature('libjpeg_turbo')}), torch {torch.__version__}, "
            f"torchvision {torchvision.__version__}",
}))
print()
head("one thread", "images/s", "Tessera is faster by", "lowest round", "highest round")
row("Tessera", rate("ours"), "", "", "")
for side, what in (("transform", f"{names}, its transform"), ("loader", "timm's loader around it")):
    found = ratios(side)
    row(what, rate(side), f"{statistics.median(found):.2f}", f"{found[0]:.2f}", f"{found[-1]:.2f}")
