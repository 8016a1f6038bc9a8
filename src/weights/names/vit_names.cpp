// Vision Transformers. Our names are timm's.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows vit_torchvision() {
  return joined({{{"class_token", "cls_token"},
                  {"encoder.pos_embedding", "pos_embed"},
                  {"encoder.ln.*", "norm.*"},
                  {"heads.head.*", "head.*"},
                  {"conv_proj.*", "patch_embed.proj.*"}},
                 below("encoder.layers.encoder_layer_{}.", "blocks.{}.",
                       {{"ln_1.*", "norm1.*"},
                        {"ln_2.*", "norm2.*"},
                        {"mlp.0.*", "mlp.fc1.*"},
                        {"mlp.3.*", "mlp.fc2.*"},
                        {"mlp.linear_1.*", "mlp.fc1.*", {}, "", true},
                        {"mlp.linear_2.*", "mlp.fc2.*", {}, "", true},
                        {"self_attention.in_proj_*", "attn.qkv.*"},
                        {"self_attention.out_proj.*", "attn.proj.*"}})});
}

// mmpretrain and mmseg. The second names of LayerScale are those of their BEiT.
NameRows vit_openmmlab() {
  return joined({{{"patch_embed.projection.*", "patch_embed.proj.*"},
                  {"ln1.*", "norm.*"},
                  {"head.layers.head.*", "head.*"}},
                 below("layers.{}.", "blocks.{}.",
                       {{"ln1.*", "norm1.*"},
                        {"ln2.*", "norm2.*"},
                        {"ffn.layers.0.0.*", "mlp.fc1.*"},
                        {"ffn.layers.1.*", "mlp.fc2.*"},
                        {"attn.gamma1.weight", "ls1.gamma"},
                        {"ffn.gamma2.weight", "ls2.gamma"},
                        {"gamma_1", "ls1.gamma", {}, "", true},
                        {"gamma_2", "ls2.gamma", {}, "", true},
                        {"attn.relative_position_index", ""},
                        {"attn.**", "attn.**"}})});
}

// The ViT in the code of Vision-LSTM.
NameRows vit_vision_lstm() {
  return {{"cls_tokens.tokens", "cls_token"},
          {"pos_embed.embed", "pos_embed"},
          {"head.0.*", "norm.*"},
          {"head.1.*", "head.*"}};
}

// BEiT's keys have no bias.
NameRows vit_beit() {
  return joined({{{"rel_pos_bias.relative_position_index", ""}},
                 below("blocks.{}.", "blocks.{}.",
                       {{"gamma_1", "ls1.gamma"},
                        {"gamma_2", "ls2.gamma"},
                        {"attn.q_bias", "attn.qkv.bias", part(0, 3), "", true},
                        {"attn.v_bias", "attn.qkv.bias", part(2, 3), "", true},
                        {"attn.relative_position_index", ""}})});
}

}  // namespace

std::vector<NameTable> vit_names() {
  return {{"torchvision", "vit", vit_torchvision()},
          {"openmmlab", "vit", vit_openmmlab()},
          {"vision-lstm", "vit", vit_vision_lstm()},
          {"beit", "vit", vit_beit()}};
}

}  // namespace tessera::train
