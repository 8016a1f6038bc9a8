"""A file of random weights as OpenCLIP writes them: `tiny_towers.py FILE clip|coca`. 257 + 2 tokens: those of bytes."""
import json
import math
import random
import struct
import sys

path, kind = sys.argv[1], sys.argv[2]
coca = kind == "coca"
draw = random.Random(2)
dim, hidden, embed, context, vocabulary, patch, side = 64, 96, 16, 24, 259, 8, 32
shapes = {"logit_scale": [], "visual.class_embedding": [dim], "visual.conv1.weight": [dim, 3, patch, patch],
          "visual.positional_embedding": [(side // patch) ** 2 + 1, dim]}


def norm(name, width):
    shapes.update({name + ".weight": [width], name + ".bias": [width]})


def linear(name, to, width):
    shapes.update({name + ".weight": [to, width], name + ".bias": [to]})


def block(name, width, attention=None):
    norm(name + "ln_1", width)
    norm(name + "ln_2", width)
    shapes.update(attention or {name + "attn.in_proj_weight": [3 * width, width], name + "attn.in_proj_bias": [3 * width]})
    linear(name + "attn.out_proj", width, width)
    linear(name + "mlp.c_fc", hidden, width)
    linear(name + "mlp.c_proj", width, hidden)


norm("visual.ln_pre", dim)
block("visual.transformer.resblocks.0.", dim)
norm("visual.ln_post", embed if coca else dim)
text = "text." if coca else ""
shapes |= {text + "token_embedding.weight": [vocabulary, dim], text + "positional_embedding": [context + coca, dim],
           text + "text_projection": [dim, embed]}
block(text + "transformer.resblocks.0.", dim)
norm(text + "ln_final", dim)
if coca:
    shapes |= {"text.cls_emb": [dim], "visual.proj": [embed, embed], "visual.attn_pool.query": [5, embed]}
    norm("visual.attn_pool.ln_q", embed)
    norm("visual.attn_pool.ln_k", dim)
    pool = "visual.attn_pool.attn."
    shapes |= {pool + "q_proj_weight": [embed, embed], pool + "k_proj_weight": [embed, dim],
               pool + "v_proj_weight": [embed, dim], pool + "in_proj_bias": [3 * embed]}
    linear(pool + "out_proj", embed, embed)
    block("text_decoder.resblocks.0.", dim)
    cross = "text_decoder.cross_attn.0."
    block(cross, dim, {cross + "attn.q_proj_weight": [dim, dim], cross + "attn.k_proj_weight": [dim, embed],
                       cross + "attn.v_proj_weight": [dim, embed], cross + "attn.in_proj_bias": [3 * dim]})
    norm(cross + "ln_1_kv", embed)
    norm("text_decoder.ln_final", dim)
    shapes["text_decoder.text_projection"] = [dim, vocabulary]
else:
    shapes["visual.proj"] = [dim, embed]
header, body = {}, b""
for name, shape in shapes.items():
    count = math.prod(shape)
    ones = "ln_" in name and name.endswith("weight")
    values = [2.0] if name == "logit_scale" else [1.0 if ones else draw.gauss(0, 0.2) for _ in range(count)]
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + 4 * count]}
    body += struct.pack(f"<{count}f", *values)
front = json.dumps(header).encode()
open(path, "wb").write(struct.pack("<Q", len(front)) + front + body)
