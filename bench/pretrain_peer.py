"""Masked and autoregressive pre-training steps of a ViT-B/16 in plain PyTorch, the peer of `tessera bench train --task`.

First fills each network with weights from `tessera train`, and compares its loss with that of `tessera eval` on the same
image. Parameters have the names in those files.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from rounds import head, row, take_turns, tessera, times_faster

WIDTH, DEPTH, HEADS, PATCH, SIDE = 768, 12, 12, 16, 224
GRID = SIDE // PATCH
PATCHES, PIXELS = GRID * GRID, 3 * PATCH * PATCH
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LARGEST_DIFFERENCE = 1e-4  # of losses, both in float32, relative


def patchify(images):
    """[batch, patches, 3 patch^2], channels last."""
    x = images.unflatten(2, (GRID, PATCH)).unflatten(4, (GRID, PATCH))
    return x.permute(0, 2, 4, 3, 5, 1).reshape(len(images), PATCHES, PIXELS)


def sincos(width):
    """MAE's table: the first half of the channels encodes the column, the second the row; sines, then cosines."""
    rates = 10000 ** (-torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    angles = torch.arange(GRID, dtype=torch.float64)[:, None] * rates
    line = torch.cat([angles.sin(), angles.cos()], 1)
    return torch.cat([line.repeat(GRID, 1), line.repeat_interleave(GRID, 0)], 1).float()[None]


def rotary():
    """Cosines and sines for [start, patches]: half of a head's channels by the column, half by the row; start is at (-1, -1)."""
    quarter = WIDTH // HEADS // 4
    rates = 10000 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    places = torch.arange(PATCHES - 1)
    columns = torch.cat([torch.tensor([-1]), places % GRID]).double()
    rows = torch.cat([torch.tensor([-1]), places // GRID]).double()
    angles = torch.cat([columns[:, None] * rates, rows[:, None] * rates], 1)
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    one, other = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([one * cos - other * sin, other * cos + one * sin], -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x, tables=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if tables:
            q, k = rotate(q, *tables), rotate(k, *tables)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=tables is not None)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x, tables=None):
        x = x + self.attn(self.norm1(x), tables)
        return x + self.mlp(self.norm2(x))


class Mae(nn.Module):
    """He et al. 2022; `order` [batch, patches] lists the visible patches of each image, then the masked ones."""

    task, model = "mae", "vit_base_patch16_224"

    def __init__(self, mask_ratio=0.75):
        super().__init__()
        self.visible = int(PATCHES * (1 - mask_ratio))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.decoder_embed, self.mask_token = nn.Linear(WIDTH, 512), nn.Parameter(torch.zeros(1, 1, 512))
        self.decoder_blocks = nn.ModuleList(Block(512, 16) for _ in range(8))
        self.decoder_norm, self.decoder_pred = nn.LayerNorm(512, eps=1e-6), nn.Linear(512, PIXELS)
        self.register_buffer("places", sincos(WIDTH), persistent=False)
        self.register_buffer("decoder_places", sincos(512), persistent=False)

    def forward(self, images, order):
        x = self.patch_embed.proj(images).flatten(2).transpose(1, 2) + self.places
        seen = order[:, :self.visible]
        x = x.gather(1, seen[..., None].expand(-1, -1, WIDTH))
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        x = self.decoder_embed(self.norm(x))
        masked = self.mask_token.to(x.dtype).expand(len(x), PATCHES - self.visible, -1)
        back = order.argsort(1)[..., None].expand(-1, -1, 512)
        x = torch.cat([x[:, :1], torch.cat([x[:, 1:], masked], 1).gather(1, back) + self.decoder_places], 1)
        for block in self.decoder_blocks:
            x = block(x)
        return self.decoder_pred(self.decoder_norm(x))[:, 1:]

    def losses(self, images, order):
        """Returns the loss of each image, over its masked patches, with normalised pixels."""
        target = patchify(images)
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
        each = (self(images, order).float() - target).square().mean(-1)
        return each.gather(1, order[:, self.visible:]).mean(1)

    def step_loss(self, images):
        return self.losses(images, torch.rand(len(images), PATCHES).argsort(1)).mean()

    def matches(self, images, loss):
        """Only the other program has the index of the one masked patch: its loss must match one of them."""
        visible, self.visible = self.visible, PATCHES - 1
        orders = torch.stack([torch.cat([torch.arange(PATCHES)[torch.arange(PATCHES) != last], torch.tensor([last])])
                              for last in range(PATCHES)])
        ours = torch.cat([self.losses(images.expand(len(part), -1, -1, -1), part) for part in orders.split(14)])
        self.visible = visible
        return (ours / loss - 1).abs().min().item()


class Darl(nn.Module):
    """Li et al. 2024 with the mean squared error and a linear decoder."""

    task, model = "darl", "darl_base_patch16_224"

    def __init__(self):
        super().__init__()
        self.start_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.patch_embed = nn.Linear(PIXELS, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.decoder = nn.Module()
        self.decoder.head = nn.Linear(WIDTH, PIXELS)
        self.tables = rotary()

    def step_loss(self, images):
        pixels = patchify(images)
        x = torch.cat([self.start_token.expand(len(images), -1, -1), self.patch_embed(pixels)[:, :-1]], 1)
        for block in self.blocks:
            x = block(x, self.tables)
        return (self.decoder.head(self.norm(x)).float() - pixels).square().mean()

    def matches(self, images, loss):
        return abs(self.step_loss(images).item() / loss - 1)


class Supervised(nn.Module):
    """ViT-B/16 with a class token, the baseline of `tessera bench train`."""

    task, model = "classify", "vit_base_patch16_224"


def noise_image(path, seed):
    """Smooth, but without two equal patches."""
    coarse = numpy.random.default_rng(seed).integers(0, 256, (28, 28, 3), dtype=numpy.uint8)
    Image.fromarray(coarse).resize((SIDE, SIDE), Image.BICUBIC).save(path)


def exchanged(program, network, folder):
    """The network with weights from `tessera`; fails unless both give the same loss for an image."""
    for name, count in (("train", 2), ("val", 1)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noise_image(folder / name / f"{name}{number}.png", 10 * count + number)
    recipe = folder / "recipe.toml"
    settings = {"mae": "mask_ratio = 0.004", "darl": ""}[network.task]
    positions = 'positions = "sincos"' if network.task == "mae" else ""
    recipe.write_text(f'[task]\nname = "{network.task}"\n{settings}\n[model]\nname = "{network.model}"\n{positions}\n'
                      f'[data]\npath = "{folder}/train"\nval_path = "{folder}/val"\n[preprocess]\nsize = {SIDE}\ncrop = 1.0\n'
                      f'[optimiser]\nlr = 0.0\n[train]\nsteps = 1\nbatch_size = 2\noutput = "{folder}/run"\n')
    subprocess.run([program, "train", recipe], check=True, capture_output=True)
    weights = folder / "run" / "model.safetensors"
    answer = subprocess.run([program, "eval", "--weights", weights, "--json"], check=True, capture_output=True, text=True)
    theirs = json.loads(answer.stdout)["loss"]
    missing, unexpected = network.load_state_dict(load_file(weights), strict=False)
    if missing or set(unexpected) - {"pos_embed", "decoder_pos_embed"}:
        sys.exit(f"{network.task}: other tensors: {missing} {unexpected}")
    pixels = torch.from_numpy(numpy.asarray(Image.open(folder / "val" / "val0.png").convert("RGB")).copy()).float() / 255
    image = ((pixels - torch.tensor(MEAN)) / torch.tensor(STD)).permute(2, 0, 1)[None]
    with torch.no_grad():
        difference = network.matches(image, theirs)
    if not difference <= LARGEST_DIFFERENCE:
        sys.exit(f"{network.task}: the losses differ by {difference:.2e}, tessera gives {theirs}")
    print(f"{network.task}: losses agree to {difference:.1e}", file=sys.stderr)
    return network


def training_step(network, images, precision):
    network.train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = network.step_loss(images)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def timed(step, seconds):
    """Seconds per step: the mean of the steps that fit, after one to warm up."""
    step()
    began, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - began < seconds:
        step()
        count += 1
    return (time.perf_counter() - began) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="per implementation and round")
    parser.add_argument("--precision", default="bf16", choices=("fp32", "bf16"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    images = torch.randn(options.batch, 3, SIDE, SIDE)

    def ours(kind):
        return lambda: tessera(options.program, "train", task=kind.task, model=kind.model, batch=options.batch,
                               threads=options.threads, seconds=options.seconds,
                               precision=options.precision)["images_per_second"]

    ways = {("tessera", "classify"): ours(Supervised)}
    with tempfile.TemporaryDirectory() as folder:
        for kind in (Mae, Darl):
            network = exchanged(options.program, kind(), pathlib.Path(folder, kind.task))
            step = training_step(network, images, options.precision)
            ways["tessera", kind.task] = ours(kind)
            ways["PyTorch", kind.task] = lambda step=step: options.batch / timed(step, options.seconds)
    results = take_turns(ways, options.rounds, f"pre-training steps, batch {options.batch}, {options.precision}")
    head("task", "model", "", "images/s", "tessera is faster by", "than supervised")
    for (name, task), values in results.items():
        kind = {"mae": Mae, "darl": Darl, "classify": Supervised}[task]
        own = name == "tessera"
        row(task, kind.model, name, f"{statistics.median(values):.1f}",
            "" if own else f"{times_faster(results['tessera', task], values):.2f}",
            f"{times_faster(values, results['tessera', 'classify']):.2f}" if own and task != "classify" else "")


if __name__ == "__main__":
    main()
