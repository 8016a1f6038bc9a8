"""VisionLLaMA and iLLaMA in plain PyTorch, for speed: blocks of RoPE, SwiGLU and a norm before each branch. Weights are random,
and the number of parameters is that of `tessera models` within 2 %."""

import torch
from torch import nn
from torch.nn import functional

# name: width, depth, heads, hidden width, causal, parameters of `tessera models`
SIZES = {"visionllama_small_patch16_224": (384, 12, 6, 1024, False, 21961192),
         "illama_small_patch16_224": (384, 12, 6, 1024, True, 22018024)}
SIDE, PATCH, CLASSES = 224, 16, 1000


class Block(nn.Module):
    def __init__(self, width, heads, hidden, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    @staticmethod
    def rotated(x, cos, sin):
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.rotated(q, cos.to(q.dtype), sin.to(q.dtype)), self.rotated(k, cos.to(q.dtype), sin.to(q.dtype))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class LlamaVit(nn.Module):
    def __init__(self, width, depth, heads, hidden, causal):
        super().__init__()
        tokens, pairs = (SIDE // PATCH) ** 2 + 1, width // heads // 2
        self.patch_embed = nn.Conv2d(3, width, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.causal = causal
        self.blocks = nn.ModuleList(Block(width, heads, hidden, causal) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)
        angles = torch.outer(torch.arange(tokens), 10000 ** (-torch.arange(pairs) / pairs))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(x), -1, -1)
        x = torch.cat([x, token] if self.causal else [token, x], 1)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x)[:, -1 if self.causal else 0])


def create(name):
    *size, parameters = SIZES[name]
    model = LlamaVit(*size)
    own = sum(p.numel() for p in model.parameters())
    if abs(own / parameters - 1) > 0.02:
        raise SystemExit(f"{name} has {own} parameters here, {parameters} in tessera")
    return model
