"""A folder with a small model of random weights, config.json and model.safetensors: `tiny_language.py FOLDER TOKENS [KIND]`.

KIND is llava or t5 instead of a LLaMA; or flamingo, what OpenFlamingo adds to that LLaMA and the tower of tiny_towers.py.
"""
import json
import os
import random
import struct
import sys

folder, vocabulary, kind = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or ["llama"])[0]
draw = random.Random(1)
dim, hidden, depth = 16, 24, 2
text = {"model_type": "llama", "vocab_size": vocabulary, "hidden_size": dim, "intermediate_size": hidden,
        "num_hidden_layers": depth, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 96,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "head_dim": None}
shapes = {"model.embed_tokens.weight": [vocabulary, dim], "lm_head.weight": [vocabulary, dim],
          "model.norm.weight": [dim]}
for i in range(depth):
    layer = f"model.layers.{i}."
    shapes |= {layer + "input_layernorm.weight": [dim], layer + "post_attention_layernorm.weight": [dim],
               layer + "self_attn.q_proj.weight": [dim, dim], layer + "self_attn.o_proj.weight": [dim, dim],
               layer + "self_attn.k_proj.weight": [8, dim], layer + "self_attn.v_proj.weight": [8, dim],
               layer + "mlp.gate_proj.weight": [hidden, dim], layer + "mlp.up_proj.weight": [hidden, dim],
               layer + "mlp.down_proj.weight": [dim, hidden], layer + "self_attn.rotary_emb.inv_freq": [4]}
config = text
if kind == "llava":
    shapes = {"language_model." + name: shape for name, shape in shapes.items()}
    wide, mlp = 12, 20
    config = {"model_type": "llava", "text_config": text, "image_token_index": vocabulary - 1,
              "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
              "vision_config": {"hidden_size": wide, "intermediate_size": mlp, "num_hidden_layers": 2,
                                "num_attention_heads": 2, "image_size": 16, "patch_size": 8}}
    tower = "vision_tower.vision_model."
    shapes |= {"multi_modal_projector.linear_1.weight": [dim, wide], "multi_modal_projector.linear_1.bias": [dim],
               "multi_modal_projector.linear_2.weight": [dim, dim], "multi_modal_projector.linear_2.bias": [dim],
               tower + "embeddings.class_embedding": [wide], tower + "embeddings.patch_embedding.weight": [wide, 3, 8, 8],
               tower + "embeddings.position_embedding.weight": [5, wide]}
    for norm in ("pre_layrnorm", "post_layernorm"):
        shapes |= {tower + norm + ".weight": [wide], tower + norm + ".bias": [wide]}
    for i in range(2):
        layer = tower + f"encoder.layers.{i}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= {layer + f"self_attn.{name}.weight": [wide, wide], layer + f"self_attn.{name}.bias": [wide]}
        for norm in ("layer_norm1", "layer_norm2"):
            shapes |= {layer + norm + ".weight": [wide], layer + norm + ".bias": [wide]}
        shapes |= {layer + "mlp.fc1.weight": [mlp, wide], layer + "mlp.fc1.bias": [mlp],
                   layer + "mlp.fc2.weight": [wide, mlp], layer + "mlp.fc2.bias": [wide]}
elif kind == "t5":
    config = {"model_type": "t5", "vocab_size": vocabulary, "d_model": dim, "d_kv": 8, "d_ff": hidden, "num_layers": depth,
              "num_heads": 2, "feed_forward_proj": "relu", "decoder_start_token_id": 0, "eos_token_id": 1}
    shapes = {"shared.weight": [vocabulary, dim], "encoder.embed_tokens.weight": [vocabulary, dim]}
    for side, parts in (("encoder", ("SelfAttention",)), ("decoder", ("SelfAttention", "EncDecAttention"))):
        shapes |= {f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight": [32, 2],
                   f"{side}.final_layer_norm.weight": [dim]}
        for i in range(depth):
            for j, part in enumerate(parts):
                shapes |= {f"{side}.block.{i}.layer.{j}.{part}.{name}.weight": [dim, dim] for name in "qkvo"}
            last = f"{side}.block.{i}.layer.{len(parts)}.DenseReluDense."
            shapes |= {last + "wi.weight": [hidden, dim], last + "wo.weight": [dim, hidden]}
            shapes |= {f"{side}.block.{i}.layer.{j}.layer_norm.weight": [dim] for j in range(len(parts) + 1)}
elif kind == "flamingo":
    wide, head = 64, 64  # the tower's tokens; OpenFlamingo's heads
    shapes = {"perceiver.latents": [3, wide], "lang_encoder.model.embed_tokens.weight": [vocabulary, dim]}

    def branches(path, names, norms, width, read):
        for norm in norms:
            shapes.update({path + norm + ".weight": [width], path + norm + ".bias": [width]})
        shapes.update({path + names[0] + ".to_q.weight": [head, width], path + names[0] + ".to_kv.weight": [2 * head, read],
                       path + names[0] + ".to_out.weight": [width, head], path + names[1] + ".1.weight": [4 * width, width],
                       path + names[1] + ".3.weight": [width, 4 * width]})

    branches("perceiver.layers.0.", "01", ("0.norm_media", "0.norm_latents", "1.0"), wide, wide)
    shapes |= {"perceiver.norm.weight": [wide], "perceiver.norm.bias": [wide]}
    gated = "lang_encoder.model.layers.1.gated_cross_attn_layer."
    branches(gated, ("attn", "ff"), ("attn.norm", "ff.0"), dim, wide)
    shapes |= {gated + "attn_gate": [1], gated + "ff_gate": [1]}
header, body = {}, b""
for name, shape in shapes.items():
    count = 1
    for side in shape:
        count *= side
    values = struct.pack(f"<{count}f", *(1 if "norm" in name and len(shape) == 1 else draw.gauss(0, 0.3) for _ in range(count)))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
    body += values
front = json.dumps(header).encode()
os.makedirs(folder, exist_ok=True)
open(folder + "/config.json", "w").write(json.dumps(config))
open(folder + "/model.safetensors", "wb").write(struct.pack("<Q", len(front)) + front + body)
