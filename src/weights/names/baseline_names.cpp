// The baseline families of the papers. Our names of PoolFormer are timm's; so are those of AIM's trunk, and
// only its head has the authors' names. Our names of Vision Mamba are its code's, except for the list of blocks.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

// The paper's code: one index counts both the stages and the convolutions between them.
NameRows poolformer_sail() {
  return joined({{{"patch_embed.proj.*", "stem.conv.*"},
                  {"network.{*2-1}.proj.*", "stages.{}.downsample.conv.*"},
                  {"norm.*", "head.norm.*"},
                  {"head.*", "head.fc.*"}},
                 below("network.{*2}.{}.", "stages.{}.blocks.{}.",
                       {{"layer_scale_1", "layer_scale1.scale"},
                        {"layer_scale_2", "layer_scale2.scale"},
                        {"**", "**"}})});
}

NameRows poolformer_transformers() {
  return joined({below("poolformer.encoder.", "",
                       {{"patch_embeddings.0.projection.*", "stem.conv.*"},
                        {"patch_embeddings.{}.projection.*", "stages.{}.downsample.conv.*"}}),
                 below("poolformer.encoder.block.{}.{}.", "stages.{}.blocks.{}.",
                       {{"before_norm.*", "norm1.*"},
                        {"after_norm.*", "norm2.*"},
                        {"output.conv1.*", "mlp.fc1.*"},
                        {"output.conv2.*", "mlp.fc2.*"},
                        {"layer_scale_1", "layer_scale1.scale"},
                        {"layer_scale_2", "layer_scale2.scale"}}),
                 {{"norm.*", "head.norm.*"}, {"classifier.*", "head.fc.*"}}});
}

// The authors' files contain a mask that follows from the prefix.
NameRows aim_apple() {
  return joined(
      {{{"preprocessor.patchifier.**", "patch_embed.**"}, {"trunk.post_trunk_norm.*", "norm.*"}},
       below("trunk.blocks.{}.", "blocks.{}.",
             {{"norm_1.*", "norm1.*"}, {"norm_2.*", "norm2.*"}, {"attn.attn_mask", ""}, {"**", "**"}})});
}

// Vision-RWKV of OpenMMLab: the backbone in a classifier, or alone.
NameRows vrwkv_backbone() {
  return {{"pos_embed", "pos_embed"},
          {"patch_embed.projection.*", "patch_embed.proj.*"},
          {"layers.{}.**", "blocks.{}.**"},
          {"ln1.*", "ln1.*"}};
}

// iGPT in transformers: GPT-2's projections have their inputs first.
NameRows igpt_transformers() {
  return joined({below("transformer.", "", {{"wte.*", "wte.*"}, {"wpe.*", "wpe.*"}, {"ln_f.*", "norm.*"}}),
                 below("transformer.h.{}.", "blocks.{}.",
                       {{"ln_1.*", "norm1.*"},
                        {"ln_2.*", "norm2.*"},
                        {"attn.bias", ""},
                        {"attn.masked_bias", ""},
                        {"attn.c_attn.weight", "attn.qkv.weight", kTransposed},
                        {"attn.c_attn.*", "attn.qkv.*"},
                        {"attn.c_proj.weight", "attn.proj.weight", kTransposed},
                        {"attn.c_proj.*", "attn.proj.*"},
                        {"mlp.c_fc.weight", "mlp.fc1.weight", kTransposed},
                        {"mlp.c_fc.*", "mlp.fc1.*"},
                        {"mlp.c_proj.weight", "mlp.fc2.weight", kTransposed},
                        {"mlp.c_proj.*", "mlp.fc2.*"}}),
                 {{"score.*", "head.*"}}});
}

}  // namespace

std::vector<NameTable> baseline_names() {
  return {{"sail", "poolformer", poolformer_sail()},
          {"transformers", "poolformer", poolformer_transformers()},
          {"apple", "aim", aim_apple()}};
}

std::vector<NameTable> scan_names() {
  return {
      {"hustvl", "vim", {{"layers.{}.**", "blocks.{}.**"}}},
      {"openmmlab", "vrwkv",
       joined(
           {below("backbone.", "", vrwkv_backbone()), {{"head.fc.*", "head.*"}}, older(vrwkv_backbone())})}};
}

std::vector<NameTable> igpt_names() { return {{"transformers", "igpt", igpt_transformers()}}; }

}  // namespace tessera::train
