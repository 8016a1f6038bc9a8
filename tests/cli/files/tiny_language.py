"""A folder with a small LLaMA, or with `llava` a small LLaVA, of random weights: config.json and model.safetensors."""
import json
import os
import random
import struct
import sys

folder, vocabulary, images = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
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
if images:
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
