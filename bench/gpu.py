#!/usr/bin/env python3
"""Images per second on a GPU: tessera against the same network in PyTorch, eager and compiled, in turns in one run.

  bench/tables gpu docs/performance.md bench/gpu.py --program BUILD/tessera

Needs a Python with torch for CUDA and timm; Vision-LSTM is bench/vil_peer.py. Prints rows of Markdown: forward passes with
weights in bf16, training steps (cross entropy, AdamW) with bf16 by autocast.
"""
import argparse
import copy
import statistics
import time

import torch

from rounds import head, row, take_turns, tessera, times_faster

MODELS = [("deit3_small_patch16_224", 128), ("deit3_base_patch16_224", 128), ("vil_tiny_patch16_224", 64)]


def rate(step, batch, seconds):
    """Images per second: the median over synchronised steps."""
    for _ in range(3):
        step()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 3:
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return batch / statistics.median(times)


def forward(model, images):
    model, images = model.to(torch.bfloat16).eval(), images.to(torch.bfloat16)

    def step():
        with torch.inference_mode():
            model(images)

    return step


def training(model, images):
    model = model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    labels = torch.arange(len(images), device=images.device)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(images)
        torch.nn.functional.cross_entropy(scores.float(), labels).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def network(name, program):
    if name.startswith("vil_"):
        import vil_peer

        return vil_peer.create(name, program).cuda()
    import timm

    return timm.create_model(name, pretrained=False).cuda()


def measure(options, name, batch):
    model = network(name, options.program)
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    for kind, make in (("infer", forward), ("train", training)):
        eager = make(copy.deepcopy(model), images)
        compiled = make(torch.compile(copy.deepcopy(model)), images)
        ways = {
            "tessera": lambda: tessera(options.program, kind, model=name, batch=batch, device="cuda", precision="bf16",
                                       seconds=options.seconds)["images_per_second"],
            "PyTorch": lambda: rate(eager, batch, options.seconds),
            "torch.compile": lambda: rate(compiled, batch, options.seconds),
        }
        rates = take_turns(ways, options.rounds, f"{kind} {name}")
        for way, values in rates.items():
            faster = "" if way == "tessera" else f"{times_faster(rates['tessera'], values):.2f}"
            row(name, batch, {"infer": "forward", "train": "training step"}[kind], way, f"{statistics.median(values):.0f}", faster)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="per implementation and round")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, bf16:\n")
    head("model", "batch", "", "", "images/s", "tessera is faster by")
    for name, batch in MODELS:
        measure(options, name, batch)


if __name__ == "__main__":
    main()
