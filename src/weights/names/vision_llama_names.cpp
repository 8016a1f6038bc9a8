// VisionLLaMA of mmpretrain: the backbone alone, or inside a classifier.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows llama_openmmlab() {
  return joined({// The position table is frozen and unused.
                 {{"pos_embed", "", {}, "patch_embed.projection.*"},
                  {"patch_embed.projection.*", "patch_embed.proj.*"},
                  // If the file has both last norms, the first is for all tokens.
                  {"ln1.*", "token_norm.*", {}, "ln2.*"},
                  {"ln2.*", "norm.*"},
                  {"ln1.*", "norm.*", {}, "", true}},
                 below("layers.{}.", "blocks.{}.",
                       {{"attn.gamma1.weight", "gamma_1"},
                        {"ffn.gamma2.weight", "gamma_2"},
                        {"ffn.layers.0.0.*", "mlp.fc1.*"},
                        {"ffn.layers.1.*", "mlp.fc2.*"},
                        {"ln1.*", "norm1.*"},
                        {"ln2.*", "norm2.*"},
                        {"ffn.**", "mlp.**"},
                        {"**", "**"}})});
}

}  // namespace

std::vector<NameTable> vision_llama_names() {
  return {{"openmmlab", "visionllama",
           joined({older(below("backbone.", "", llama_openmmlab())),
                   llama_openmmlab(),
                   {{"head.fc.*", "head.*"}},
                   older({{"backbone.**", "**"}})})}};
}

}  // namespace tessera::train
