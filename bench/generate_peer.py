"""Predictions and training steps per second of DiT-S/2 and DiT-LLaMA-S/2: tessera against the same networks in plain
PyTorch (eager and compiled), diffusers' DiTTransformer2DModel and OpenVINO, in turns in one run.

Parameters have their published names. `create` fills them with random numbers, lets `tessera convert` check and rewrite
them, loads the result, and compares both programs' predictions for the same noise. Prints a row of Markdown per
implementation.
"""

import argparse
import copy
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

import torch
from torch import nn
from torch.nn import functional

from infer_peer import openvino_step
from rounds import row, take_turns, tessera, timed, times_faster

WIDTH, DEPTH, HEADS, PATCH, SIDE, CHANNELS, CLASSES = 384, 12, 6, 2, 32, 4, 1000
LARGEST_DIFFERENCE = 1e-3  # for predictions of about 1, both in float32
MODELS = {"dit_s_patch2": False, "dit_llama_s_patch2": True}


def rotate(x):
    """2-D RoPE as in VisionLLaMA's code: pairs of neighbours, rows' and columns' angles in turn."""
    tokens, width = x.shape[-2:]
    side = math.isqrt(tokens)
    frequencies = 10000 ** (-torch.arange(0, width, 4, device=x.device)[: width // 4].float() / width)
    places = torch.arange(tokens, device=x.device)
    columns, rows = torch.outer(places % side, frequencies), torch.outer(places // side, frequencies)
    angles = torch.stack([columns, rows], -1).flatten(1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, llama, width, heads):
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.llama, self.heads = llama, heads

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.llama:
            q, k = rotate(q), rotate(k)
        return self.proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class SwiGlu(nn.Module):
    def __init__(self, width):
        super().__init__()
        hidden = (8 * width // 3 + 255) // 256 * 256
        self.c_fc1, self.c_fc2 = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.c_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.c_proj(functional.silu(self.c_fc1(x)) * self.c_fc2(x))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(x), approximate="tanh"))


def modulated(x, shift, scale):
    return functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self, llama, width, heads):
        super().__init__()
        self.attn, self.mlp = Attention(llama, width, heads), SwiGlu(width) if llama else Mlp(width)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, 1)
        x = x + gate1[:, None] * self.attn(modulated(x, shift1, scale1))
        return x + gate2[:, None] * self.mlp(modulated(x, shift2, scale2))


class Dit(nn.Module):
    def __init__(self, llama, width=WIDTH, depth=DEPTH, heads=HEADS):
        super().__init__()
        self.llama = llama
        self.x_embedder = nn.ModuleDict({"proj": nn.Conv2d(CHANNELS, width, PATCH, PATCH)})
        self.t_embedder = nn.ModuleDict({"mlp": nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))})
        self.y_embedder = nn.ModuleDict({"embedding_table": nn.Embedding(CLASSES + 1, width)})
        self.pos_embed = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2, width), requires_grad=False)
        self.blocks = nn.ModuleList(Block(llama, width, heads) for _ in range(depth))
        self.final_layer = nn.ModuleDict({"linear": nn.Linear(width, PATCH * PATCH * 2 * CHANNELS),
                                          "adaLN_modulation": nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))})

    def forward(self, x, t, y):
        frequencies = torch.exp(torch.arange(128, device=t.device) * (-math.log(10000) / 128))
        angles = t.float()[:, None] * frequencies
        waves = torch.cat([angles.cos(), angles.sin()], 1).to(self.pos_embed.dtype)
        c = self.t_embedder["mlp"](waves) + self.y_embedder["embedding_table"](y)
        x = self.x_embedder["proj"](x).flatten(2).transpose(1, 2)
        if not self.llama:
            x = x + self.pos_embed
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final_layer["adaLN_modulation"](c).chunk(2, 1)
        x = self.final_layer["linear"](modulated(x, shift, scale))
        side = SIDE // PATCH
        x = x.unflatten(1, (side, side)).unflatten(-1, (PATCH, PATCH, -1))
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


@torch.no_grad()
def fill(model):
    """Random numbers to which every part of the network responds; positions as in `tessera`."""
    for name, parameter in model.named_parameters():
        if name == "pos_embed":
            continue
        if parameter.dim() == 1 or "embedding_table" in name:
            parameter.normal_(0, 0.1)
        else:
            parameter.normal_(0, parameter[0].numel() ** -0.5)


def inputs(batch):
    torch.manual_seed(1)
    return torch.randn(batch, CHANNELS, SIDE, SIDE), torch.linspace(50, 950, batch), torch.arange(batch) % CLASSES


def drawn(program, weights, folder):
    """Two images of one step of DDIM from the last of 1000 noise levels: (noise - sigma * prediction) / alpha."""
    from safetensors.torch import load_file

    out = folder / "drawn.safetensors"
    subprocess.run([program, "generate", "--weights", weights, "-o", out, "--classes", "5,7", "--cfg", "1", "--sampler",
                    "ddim", "--steps", "1", "--clip", "0", "--device", "cpu"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    (values,) = (tensor for tensor in load_file(out).values() if tensor.shape == (2, CHANNELS, SIDE, SIDE))
    return values


def create(name, program, folder):
    """Returns the network of this name with the weights that `tessera` wrote; fails if the predictions differ.

    A network with a zero last layer predicts no noise, so its images from `tessera` reveal the initial noise. The
    difference to the images of the whole network reveals its prediction for that noise."""
    from safetensors.torch import load_file

    torch.manual_seed(0)
    model = Dit(MODELS[name]).eval()
    fill(model)
    files = {}
    for kind in ("nothing", "whole"):
        state = dict(model.state_dict())
        if kind == "nothing":
            state = {key: torch.zeros_like(value) if key.startswith("final_layer.linear.") else value
                     for key, value in state.items()}
        torch.save(state, folder / f"{kind}.pt")
        files[kind] = folder / f"{name}_{kind}.safetensors"
        subprocess.run([program, "convert", folder / f"{kind}.pt", files[kind], "--model", name], check=True,
                       stdout=subprocess.DEVNULL)
    model.load_state_dict(load_file(files["whole"]))
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)[-1]
    alpha, sigma = kept.sqrt(), (1 - kept).sqrt()
    begin, end = (drawn(program, files[kind], folder).double() for kind in ("nothing", "whole"))
    theirs = (begin - end) * alpha / sigma
    with torch.inference_mode():
        ours = model((begin * alpha).float(), torch.full((2,), 999.0), torch.tensor([5, 7]))[:, :CHANNELS]
    difference, deviation = (ours - theirs).abs().max().item(), ours.std().item()
    if not difference < LARGEST_DIFFERENCE * deviation:
        raise SystemExit(f"{name}: predictions of {program} and of this module, which vary by {deviation:.3g}, differ by "
                         f"{difference:.2g}, must be less than {LARGEST_DIFFERENCE:g} of that")
    print(json.dumps({"model": name, "largest_difference": difference, "deviation": deviation}), flush=True)
    return model, files["whole"]


def of_diffusers():
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(num_attention_heads=HEADS, attention_head_dim=WIDTH // HEADS, in_channels=CHANNELS,
                                 out_channels=2 * CHANNELS, num_layers=DEPTH, sample_size=SIDE, patch_size=PATCH,
                                 num_embeds_ada_norm=CLASSES).eval()


def forward_step(model, batch, dtype):
    x, time, label = inputs(batch)
    model, x, time = model.to(dtype), x.to(dtype), time.to(dtype)

    def step():
        with torch.inference_mode():
            model(x, time, label)

    return step


class Whole(nn.Module):
    """The network as a function of the latents only, for OpenVINO's converter."""

    def __init__(self, model, batch):
        super().__init__()
        self.model = model
        _, self.time, self.label = inputs(batch)

    def forward(self, x):
        return self.model(x, self.time, self.label)


def training_step(model, batch, precision):
    """Same work as `tessera bench train --task diffuse` without the variational term: noise at a random level, its
    squared error, backward, AdamW; bf16 by autocast."""
    model = model.train()
    optimiser = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)
    x, time, label = inputs(batch)

    def step():
        noise = torch.randn_like(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            out = model(0.7 * x + 0.7 * noise, time, label)
        (out.float()[:, :CHANNELS] - noise).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def guided_run(program, weights, batch, threads, precision, sampler, steps):
    """Returns the output of `generate --json` for one batch with guidance."""
    out = subprocess.run([program, "generate", "--weights", weights, "-o", weights.with_suffix(".npy"), "-n", str(batch),
                          "--batch", str(batch), "--cfg", "4", "--cfg-channels", "4", "--sampler", sampler, "--steps",
                          str(steps), "--precision", precision, "--threads", str(threads), "--device", "cpu", "--json"],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def guided_seconds(*words):
    """Returns the seconds per step with guidance, from two runs with different numbers of steps."""
    return (guided_run(*words, "ddim", 14)["seconds"] - guided_run(*words, "ddim", 4)["seconds"]) / 10


def sampler_share(*words):
    """Returns the share of a 20-step run outside the network: noise, the sampler's sums, the file."""
    run = guided_run(*words, "dpmpp_2m", 20)
    return 1 - run["network_seconds"] / run["seconds"]


def measure(name, options, folder):
    model, weights = create(name, options.program, folder)
    batch, kind = options.batch, "train" if options.train else "infer"

    def ours(**more):
        return lambda: tessera(options.program, kind, model=name, size=SIDE, threads=options.threads,
                               seconds=options.seconds, **{"batch": batch, **more})

    def rate(step):
        return lambda: {"images_per_second": batch / timed(step, options.seconds)}

    ways = {}
    for precision in options.precisions.split(","):
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}[precision]
        ways["tessera", precision] = ours(precision=precision, **({"task": "diffuse"} if options.train else {}))
        if options.train:
            ways["PyTorch", precision] = rate(training_step(copy.deepcopy(model), batch, precision))
            ways["torch.compile", precision] = rate(training_step(torch.compile(copy.deepcopy(model)), batch, precision))
            continue
        if precision != "int8":
            ways["PyTorch", precision] = rate(forward_step(copy.deepcopy(model), batch, dtype))
            ways["torch.compile", precision] = rate(forward_step(torch.compile(copy.deepcopy(model)), batch, dtype))
            if not model.llama:
                ways["diffusers", precision] = rate(forward_step(of_diffusers(), batch, dtype))
        ways["OpenVINO", precision] = rate(openvino_step(Whole(copy.deepcopy(model), batch), inputs(batch)[0], precision,
                                                         options.threads))
        if precision == "bf16":
            ways["tessera, twice the batch", precision] = ours(precision=precision, batch=2 * batch)
            ways["tessera, guided step", precision] = lambda: {
                "images_per_second": 2 * batch / guided_seconds(options.program, weights, batch, options.threads, "bf16")}
    results = take_turns(ways, options.rounds, f"{kind} {name}, batch {batch}")
    rates = {way: [line["images_per_second"] for line in lines] for way, lines in results.items()}
    for (way, precision), values in rates.items():
        own = way == "tessera"
        limit = f"{statistics.median(line['percent_of_limit'] for line in results[way, precision]):.0f} %" if own else ""
        row(name, batch, precision, way, f"{statistics.median(values):.1f}", limit,
            "" if own else f"{times_faster(rates['tessera', precision], values):.2f}")
    if not options.train:
        words = options.program, weights, batch, options.threads, "bf16"
        share = statistics.median(sampler_share(*words) for _ in range(options.rounds))
        return f"{name}: {100 * share:.2f} % of drawing {batch} images by 20 steps of dpmpp_2m is not the network's time."
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="per implementation and round")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--train", action="store_true", help="training steps")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    remarks = []
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as directory:
            remarks.append(measure(name, options, pathlib.Path(directory)))
    print("", *filter(None, remarks), sep="\n")


if __name__ == "__main__":
    main()
