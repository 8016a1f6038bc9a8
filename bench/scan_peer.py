"""Selective scan, bi-WKV, Vim-T and VRWKV-T against plain PyTorch formulations, in turns in one run.

    python bench/scan_peer.py BUILD [--tokens 196 784 3136 12544] [--rounds 3] [--forward] [--models]

BUILD has the compiled selective_scan_bench, bi_wkv_bench and tessera. The plain formulations are the papers' formulas
as loops over tokens (as selective_scan_ref of the published code is); bi-WKV also as a product over all pairs up to 784
tokens, and the faster one counts. OMP_NUM_THREADS (2). Prints tables of Markdown.
"""

import argparse
import os
import re
import statistics
import subprocess
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import torch
from torch import nn
from torch.nn import functional as F

from rounds import head, row, tessera, times_faster

THREADS = int(os.environ["OMP_NUM_THREADS"])
torch.set_num_threads(THREADS)


def scan(u, delta, a, b, c, d, z, bias):
    """u, delta, z [batch, channels, tokens], b and c [batch, states, tokens]."""
    dt = F.softplus(delta + bias[:, None])
    decay = torch.exp(torch.einsum("bdl,dn->bdln", dt, a))
    added = torch.einsum("bdl,bnl,bdl->bdln", dt, b, u)
    h, ys = u.new_zeros(u.shape[0], u.shape[1], a.shape[1]), []
    for t in range(u.shape[2]):
        h = decay[:, :, t] * h + added[:, :, t]
        ys.append(torch.einsum("bdn,bn->bd", h, c[:, :, t]))
    return (torch.stack(ys, 2) + u * d[:, None]) * F.silu(z)


def wkv_loop(w, u, k, v):
    """k, v [batch, tokens, channels]; a recurrence from each end."""

    def walk(tokens):
        n, d, p = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), torch.full_like(k[:, 0], -1e30)
        sums = {}
        for t in tokens:
            sums[t] = n, d, p
            q = torch.maximum(p - w, k[:, t])
            old, new = torch.exp(p - w - q), torch.exp(k[:, t] - q)
            n, d, p = old * n + new * v[:, t], old * d + new, q
        return [torch.stack([sums[t][i] for t in range(k.shape[1])], 1) for i in range(3)]

    left, right = walk(range(k.shape[1])), walk(range(k.shape[1] - 1, -1, -1))
    m = torch.maximum(torch.maximum(left[2], right[2]), u + k).detach()
    a, b, c = torch.exp(left[2] - m), torch.exp(right[2] - m), torch.exp(u + k - m)
    return (a * left[0] + b * right[0] + c * v) / (a * left[1] + b * right[1] + c)


def wkv_pairs(w, u, k, v):
    index = torch.arange(k.shape[1])
    distance = (index[:, None] - index).abs()
    own = (distance == 0)[..., None]
    weight = torch.where(own, u, -(distance[..., None] - 1) * w)
    ys = []
    for keys, values in zip(k, v):
        p = torch.softmax(weight + keys, 1)
        ys.append(torch.einsum("tic,ic->tc", p, values))
    return torch.stack(ys)


def milliseconds(way):
    start = time.perf_counter()
    way()
    return (time.perf_counter() - start) * 1e3


def ours(program, tokens):
    """{tokens: (forward, forward and backward)} in milliseconds."""
    text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        if match := re.match(r"(\d+) tokens: forward ([\d.]+) ms, backward ([\d.]+) ms", line):
            forward, backward = float(match[2]), float(match[3])
            found[int(match[1])] = forward, forward + backward
    return {t: found[t] for t in tokens}


def peer(functions, inputs, gradients):
    """The faster function's forward, and forward and backward, in milliseconds; without `gradients` NaN for the second."""
    forward = both = float("inf")
    for function in functions:
        with torch.inference_mode():
            forward = min(forward, milliseconds(lambda: function(*inputs)))
        if not gradients:
            both = float("nan")
            continue
        leaves = [x.clone().requires_grad_() for x in inputs]
        both = min(both, milliseconds(lambda: function(*leaves).sum().backward()))
    return forward, both


def scan_inputs(tokens, channels=384, states=16):
    wide, narrow = (1, channels, tokens), (1, states, tokens)
    return [torch.randn(wide), torch.randn(wide) - 1, -torch.rand(channels, states), torch.randn(narrow),
            torch.randn(narrow), torch.randn(channels), torch.randn(wide), torch.randn(channels)]


def wkv_inputs(tokens, channels=192):
    return [torch.full((channels,), 1 / tokens), torch.randn(channels), torch.randn(1, tokens, channels),
            torch.randn(1, tokens, channels)]


def kernels(options):
    for title, program, inputs, functions in (
        ("Selective scan, one direction, 384 channels of 16 states", "selective_scan_bench", scan_inputs,
         lambda tokens: [scan]),
        ("bi-WKV, 192 channels", "bi_wkv_bench", wkv_inputs,
         lambda tokens: [wkv_loop, wkv_pairs] if tokens <= 784 else [wkv_loop]),
    ):
        rounds = []
        for _ in range(options.rounds):
            mine = ours(f"{options.build}/src/kernels/{program}", options.tokens)
            rounds.append({t: (mine[t], peer(functions(t), inputs(t), not options.forward)) for t in options.tokens})
        print(f"\n{title}, milliseconds a sample:\n")
        head("tokens", "forward", "PyTorch", "times", "forward and backward", "PyTorch", "times")
        for tokens in options.tokens:
            cells = []
            for part in range(2):
                pairs = [(r[tokens][0][part], r[tokens][1][part]) for r in rounds]
                us, them = (statistics.median(x) for x in zip(*pairs))
                cells += [f"{us:.3g}", f"{them:.3g}", f"{times_faster([b for _, b in pairs], [a for a, _ in pairs]):.1f}"]
            row(tokens, *cells)


class Mamba(nn.Module):
    def __init__(self, dim, inner, rank, states=16):
        super().__init__()
        self.rank, self.states = rank, states
        self.in_proj, self.out_proj = nn.Linear(dim, 2 * inner, bias=False), nn.Linear(inner, dim, bias=False)
        self.conv = nn.ModuleList(nn.Conv1d(inner, inner, 4, groups=inner, padding=3) for _ in range(2))
        self.x_proj = nn.ModuleList(nn.Linear(inner, rank + 2 * states, bias=False) for _ in range(2))
        self.dt_proj = nn.ModuleList(nn.Linear(rank, inner) for _ in range(2))
        self.a = nn.ParameterList(-torch.arange(1.0, states + 1).repeat(inner, 1) for _ in range(2))
        self.d = nn.ParameterList(torch.ones(inner) for _ in range(2))

    def walk(self, i, x, z):
        x = F.silu(self.conv[i](x)[..., : x.shape[2]])
        dt, b, c = self.x_proj[i](x.transpose(1, 2)).split([self.rank, self.states, self.states], -1)
        delta = (dt @ self.dt_proj[i].weight.t()).transpose(1, 2)
        return scan(x, delta, self.a[i], b.transpose(1, 2), c.transpose(1, 2), self.d[i], z, self.dt_proj[i].bias)

    def forward(self, tokens):
        x, z = self.in_proj(tokens).transpose(1, 2).chunk(2, 1)
        y = self.walk(0, x, z) + self.walk(1, x.flip(2), z.flip(2)).flip(2)
        return self.out_proj(y.transpose(1, 2) / 2)


class VimTiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, 16)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, 192)), nn.Parameter(torch.zeros(1, 197, 192))
        self.norms = nn.ModuleList(nn.RMSNorm(192, 1e-5) for _ in range(25))
        self.mixers = nn.ModuleList(Mamba(192, 384, 12) for _ in range(24))
        self.head = nn.Linear(192, 1000)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([x[:, :98], self.token.expand(len(x), -1, -1), x[:, 98:]], 1) + self.positions
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.head(self.norms[-1](x[:, 98]))


def shift(x, side=14):
    x = x.transpose(1, 2).unflatten(2, (side, side))
    y, q = torch.zeros_like(x), x.shape[1] // 4
    y[:, :q, :, 1:] = x[:, :q, :, :-1]
    y[:, q : 2 * q, :, :-1] = x[:, q : 2 * q, :, 1:]
    y[:, 2 * q : 3 * q, 1:] = x[:, 2 * q : 3 * q, :-1]
    y[:, 3 * q :, :-1] = x[:, 3 * q :, 1:]
    return y.flatten(2).transpose(1, 2)


class WkvBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.spatial = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.channel = nn.ModuleList([nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False),
                                      nn.Linear(dim, dim, bias=False)])
        self.mix = nn.ParameterList(torch.rand(1, 1, dim) for _ in range(5))
        self.decay, self.first = nn.Parameter(torch.linspace(-5, 3, dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        y = self.norms[0](x)
        moved = shift(y)
        k, v, r = (layer(y * m + moved * (1 - m)) for layer, m in zip(self.spatial, self.mix[:3]))
        x = x + self.spatial[3](torch.sigmoid(r) * wkv_pairs(self.decay / 196, self.first / 196, k, v))
        y = self.norms[1](x)
        moved = shift(y)
        k = torch.square(torch.relu(self.channel[0](y * self.mix[3] + moved * (1 - self.mix[3]))))
        r = self.channel[2](y * self.mix[4] + moved * (1 - self.mix[4]))
        return x + torch.sigmoid(r) * self.channel[1](k)


class VrwkvTiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.positions = nn.Conv2d(3, 192, 16, 16), nn.Parameter(torch.zeros(1, 196, 192))
        self.blocks = nn.Sequential(nn.LayerNorm(192), *(WkvBlock(192) for _ in range(12)), nn.LayerNorm(192))
        self.head = nn.Linear(192, 1000)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(x).mean(1))


def models(options):
    print("\nImages/s, batch 8, 224 pixels, forward:\n")
    head("model", "tessera, fp32", "tessera, bf16", "PyTorch, fp32", "PyTorch, bf16", "times the better")
    for name, make in (("vim_tiny_patch16_224", VimTiny), ("vrwkv_tiny_patch16_224", VrwkvTiny)):
        model, images, found = make().eval(), torch.randn(8, 3, 224, 224), []
        for _ in range(options.rounds):
            line = []
            for precision in ("fp32", "bf16"):
                result = tessera(f"{options.build}/tessera", "infer", model=name, batch=8, precision=precision,
                                 threads=THREADS)
                line.append(result["images_per_second"])
            for dtype in (torch.float32, torch.bfloat16):
                with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    model(images)
                    line.append(8e3 / milliseconds(lambda: model(images)))
            found.append(line)
        us, them = [max(r[:2]) for r in found], [max(r[2:]) for r in found]
        row(name, *(f"{statistics.median(x):.1f}" for x in zip(*found)), f"{times_faster(us, them):.1f}")


parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--tokens", type=int, nargs="+", default=[196, 784, 3136, 12544])
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--forward", action="store_true", help="no gradients: PyTorch's at 12,544 tokens take hours")
parser.add_argument("--models", action="store_true", help="only the two models")
given = parser.parse_args()
print(f"{THREADS} threads")
models(given) if given.models else kernels(given)
