"""Vision-LSTM 2 in plain PyTorch, the peer of `tessera`: the parallel mLSTM over all pairs of tokens, as in the paper.

Parameters have their published names. `create` fills them with random numbers, lets `tessera convert` check and rewrite
them, loads the result, and compares the logits of both programs for an image.
"""

import json
import math
import pathlib
import subprocess
import tempfile

import torch
from torch import nn
from torch.nn import functional

WIDTHS = {"vil_tiny_patch16_224": 192, "vil_small_patch16_224": 384, "vil_base_patch16_224": 768}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HEADS, PAIRS, PATCH, SIDE, CLASSES = 4, 12, 16, 224, 1000
LARGEST_DIFFERENCE = 1e-3  # for logits of about 1, both in float32


class ResidualNorm(nn.Module):
    """A layer norm with scale 1 + weight, separately over `groups` parts of the width."""

    def __init__(self, width, groups=1, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.groups, self.eps = groups, eps

    def forward(self, x):
        if self.groups == 1:
            return functional.layer_norm(x, x.shape[-1:], self.weight + 1, self.bias, self.eps)
        return functional.group_norm(x.flatten(0, 1), self.groups, self.weight + 1, self.bias, self.eps).view(x.shape)


class Blocks(nn.Module):
    """A linear map of blocks of four channels."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(width // 4, 4, 4)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.einsum("btni,noi->btno", x.unflatten(-1, (-1, 4)), self.weight).flatten(-2) + self.bias


class Cell(nn.Module):
    # A function of q, k, v [batch, heads, tokens, channels] and the gates' preactivations [batch, heads, tokens] in place of the
    # parallel form, such as a kernel of mlstm-kernels.
    kernel = None

    def __init__(self, width):
        super().__init__()
        self.igate, self.fgate = nn.Linear(3 * width, HEADS), nn.Linear(3 * width, HEADS)
        self.outnorm = ResidualNorm(width, HEADS)
        self.scale = (width // HEADS) ** -0.5

    def forward(self, q, k, v):
        gates = torch.cat([q, k, v], -1)
        q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
        if self.kernel:
            h = self.kernel(q, k, v, self.igate(gates).transpose(1, 2), self.fgate(gates).transpose(1, 2))
            return self.outnorm(h.transpose(1, 2).flatten(-2))
        log_i = self.igate(gates).transpose(1, 2)[:, :, None, :]
        passed = functional.logsigmoid(self.fgate(gates)).transpose(1, 2).cumsum(-1)
        tokens = q.shape[-2]
        earlier = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril()
        log_weight = passed[:, :, :, None] - passed[:, :, None, :] + log_i
        log_weight = log_weight.masked_fill(~earlier, -math.inf)
        highest = log_weight.amax(-1, keepdim=True)
        scores = q @ (k * self.scale).transpose(-1, -2) * torch.exp(log_weight - highest)
        normaliser = torch.maximum(scores.sum(-1, keepdim=True).abs(), torch.exp(-highest)) + 1e-6
        return self.outnorm((scores / normaliser @ v).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, width, reverse, side):
        super().__init__()
        inner = 2 * width
        self.reverse, self.side = reverse, side
        self.proj_up, self.proj_down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.q_proj, self.k_proj, self.v_proj = Blocks(inner), Blocks(inner), Blocks(inner)
        self.conv = nn.Conv2d(inner, inner, 3, padding=1, groups=inner)
        self.mlstm_cell = Cell(inner)
        self.learnable_skip = nn.Parameter(torch.ones(inner))

    def forward(self, tokens):
        u = self.proj_up(tokens)
        x, z = (u.flip(1) if self.reverse else u).chunk(2, -1)
        a = self.conv(x.transpose(1, 2).unflatten(-1, (self.side, -1))).flatten(2).transpose(1, 2)
        a = functional.silu(a)
        h = self.mlstm_cell(self.q_proj(a), self.k_proj(a), self.v_proj(x))
        y = (h + self.learnable_skip * a) * functional.silu(z)
        return self.proj_down(y.flip(1) if self.reverse else y)


class Block(nn.Module):
    def __init__(self, width, reverse, side):
        super().__init__()
        self.norm, self.layer = ResidualNorm(width), Layer(width, reverse, side)

    def forward(self, x):
        return x + self.layer(self.norm(x))


class Pair(nn.Module):
    def __init__(self, width, side):
        super().__init__()
        self.rowwise_from_top_left, self.rowwise_from_bot_right = Block(width, False, side), Block(width, True, side)

    def forward(self, x):
        return self.rowwise_from_bot_right(self.rowwise_from_top_left(x))


class VisionLstm(nn.Module):
    def __init__(self, width, pixels=SIDE):
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, PATCH, PATCH)})
        side = pixels // PATCH
        self.pos_embed = nn.ParameterDict({"embed": nn.Parameter(torch.zeros(1, side, side, width))})
        self.blocks = nn.ModuleList(Pair(width, side) for _ in range(PAIRS))
        self.norm, self.legacy_norm = ResidualNorm(width, eps=1e-6), nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, images):
        x = self.patch_embed["proj"](images).permute(0, 2, 3, 1) + self.pos_embed["embed"]
        x = x.flatten(1, 2)
        for pair in self.blocks:
            x = pair(x)
        x = self.norm(x)
        return self.head(self.legacy_norm(torch.cat([x[:, 0], x[:, -1]], -1)))


@torch.no_grad()
def fill(model):
    """Random numbers to which every part of the network responds; gates as at the start of training."""
    for name, parameter in model.named_parameters():
        if name.endswith("fgate.bias"):
            parameter.copy_(torch.linspace(3, 6, HEADS))
        elif name.endswith(("learnable_skip", "legacy_norm.weight")):
            parameter.normal_(1, 0.1)
        elif parameter.dim() == 1 or "embed" in name:
            parameter.normal_(0, 0.1)
        else:
            parameter.normal_(0, parameter[0].numel() ** -0.5 * (0.1 if "gate" in name else 1))


def logits_of_tessera(program, name, weights, pixels, folder):
    """Log probabilities of an image (height, width, 3), by class."""
    from PIL import Image

    picture = folder / "picture.png"
    Image.fromarray(pixels.numpy()).save(picture)
    answer = subprocess.run([program, "predict", picture, "--weights", weights, "--top", str(CLASSES), "--json",
                             "--precision", "fp32"], check=True, capture_output=True, text=True).stdout
    found = {each["index"]: each["probability"] for each in json.loads(answer)["predictions"]}
    return torch.tensor([found[index] for index in range(CLASSES)]).log()


def create(name, program):
    """The network of this name with the weights that `tessera` wrote; fails if the programs disagree on an image."""
    from safetensors.torch import load_file

    torch.manual_seed(0)
    model = VisionLstm(WIDTHS[name]).eval()
    fill(model)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        torch.save(model.state_dict(), folder / "model.pth")
        weights = folder / "model.safetensors"
        subprocess.run([program, "convert", folder / "model.pth", weights, "--model", name], check=True,
                       stdout=subprocess.DEVNULL)
        model = VisionLstm(WIDTHS[name]).eval()
        model.load_state_dict(load_file(weights))
        pixels = torch.randint(0, 256, (SIDE, SIDE, 3), dtype=torch.uint8)
        theirs = logits_of_tessera(program, name, weights, pixels, folder)
    image = (pixels.float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    with torch.inference_mode():
        ours = model(image.permute(2, 0, 1)[None])[0].log_softmax(-1)
    difference = (ours - theirs).abs().max().item()
    if not difference < LARGEST_DIFFERENCE:
        raise SystemExit(f"{name}: logits of {program} and of this module differ by {difference:.2g}, "
                         f"must be less than {LARGEST_DIFFERENCE:g}")
    print(json.dumps({"model": name, "largest_difference_of_logits": difference,
                      "deviation_of_logits": ours.std().item()}), flush=True)
    return model
