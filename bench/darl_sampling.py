#!/usr/bin/env python3
"""Generates 64 images patch by patch: `tessera generate` against a PyTorch loop that generates one image at a time and
runs the whole trunk for each patch. Prints rows of Markdown for docs/performance.md.

  bench/darl_sampling.py --program BUILD/tessera

Images of 32 x 32 in patches of 4, 100 noise levels, the trunk of recipes/compare/vit.toml. The decoder is one block on
[the trunk's token, the noised patch]. Weights are random, which does not affect time. Both in float32. The trunk's time
is that of a run with one noise level, minus that level's step. Needs torch.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

from rounds import head, row, take_turns, times_faster

WIDTH, DEPTH, HEADS, HIDDEN, PATCH, GRID = 96, 4, 3, 360, 4, 8
IMAGES, LEVELS = 64, 100
PIXELS = 3 * PATCH * PATCH


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x, causal):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Darl(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.embed = nn.Parameter(torch.zeros(1, 1, WIDTH)), nn.Linear(PIXELS, WIDTH)
        self.places = nn.Parameter(torch.zeros(1, GRID * GRID, WIDTH))
        self.trunk, self.norm = nn.ModuleList(Block() for _ in range(DEPTH)), nn.LayerNorm(WIDTH, eps=1e-6)
        self.noised, self.decoder = nn.Linear(PIXELS, WIDTH), Block()
        self.last, self.pixels = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, PIXELS)

    def draw(self, gammas):
        """One image, [patches, pixels], by ancestral sampling over the signal shares `gammas`, the noisiest first."""
        patches = []
        for place in range(GRID * GRID):
            seen = torch.stack(patches)[None] if patches else torch.zeros(1, 0, PIXELS)
            x = torch.cat([self.start, self.embed(seen)], 1) + self.places[:, :place + 1]
            for block in self.trunk:
                x = block(x, True)
            token, patch = self.norm(x)[:, -1:], torch.randn(1, 1, PIXELS)
            for gamma, after in zip(gammas, gammas[1:]):
                pair = self.decoder(torch.cat([token, self.noised(patch)], 1), False)
                clean = self.pixels(self.last(pair[:, 1:]))
                noise = (patch - gamma.sqrt() * clean) / (1 - gamma).sqrt()
                patch = after.sqrt() * clean + (1 - after).sqrt() * noise
            patches.append(patch[0, 0])
        return torch.stack(patches)


def drawn_run(program, folder):
    """A run of one step; random weights suffice."""
    recipe = pathlib.Path(__file__).resolve().parent.parent / "recipes/shapes/darl_samples.toml"
    subprocess.run([program, "train", recipe, "--output", folder / "run", "--set", f"model.dim={WIDTH}", f"model.depth={DEPTH}",
                    f"model.heads={HEADS}", f"model.patch_size={PATCH}", "model.mlp_ratio=3.75", "task.decoder_depth=1",
                    "task.gamma=false", "train.steps=1", "schedule.warmup_epochs=0"], check=True, capture_output=True)
    return folder / "run"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    network, gammas = Darl().eval(), torch.linspace(1e-3, 1 - 1e-3, LEVELS + 1)
    with tempfile.TemporaryDirectory() as directory, torch.inference_mode():
        folder = pathlib.Path(directory)
        run = drawn_run(options.program, folder)

        def ours(levels):
            said = subprocess.run([options.program, "generate", "--weights", run, "-n", str(IMAGES), "--batch", str(IMAGES), "--steps",
                                   str(levels), "--threads", str(options.threads), "-o", folder / "drawn.png", "--json"],
                                  check=True, capture_output=True, text=True).stdout
            return json.loads(said)["seconds"] / IMAGES

        def loop():
            start = time.perf_counter()
            network.draw(gammas)
            return time.perf_counter() - start

        loop()
        found = take_turns({"tessera": lambda: ours(LEVELS), "one level": lambda: ours(1), "loop": loop}, options.rounds, "drawing")
        best = {name: min(times) for name, times in found.items()}
        head("64 images of 32 x 32 patch by patch, 100 noise levels", "seconds an image", "beside the loop")
        row("PyTorch, one image at a time, the trunk anew for each patch", f"{best['loop']:.3f}", "")
        row("tessera generate", f"{best['tessera']:.4f}", f"{times_faster(found['loop'], found['tessera']):.0f} x")
        step = (best["tessera"] - best["one level"]) / (LEVELS - 1)
        print(f"\nWith one noise level an image takes {best['one level']:.4f} s, of which the decoder's step is {step:.5f}: trunk, start "
              f"and files are {100 * (best['one level'] - step) / best['tessera']:.1f} % of the time.")


if __name__ == "__main__":
    main()
