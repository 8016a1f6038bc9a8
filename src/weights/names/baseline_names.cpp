// The baseline families of the papers. Our names of PoolFormer are timm's; so are those of AIM's trunk, and
// only its head has the authors' names.
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

// The authors' files contain a mask that follows from the prefix.
NameRows aim_apple() {
  return joined(
      {{{"preprocessor.patchifier.**", "patch_embed.**"}, {"trunk.post_trunk_norm.*", "norm.*"}},
       below("trunk.blocks.{}.", "blocks.{}.",
             {{"norm_1.*", "norm1.*"}, {"norm_2.*", "norm2.*"}, {"attn.attn_mask", ""}, {"**", "**"}})});
}

}  // namespace

std::vector<NameTable> baseline_names() {
  return {{"sail", "poolformer", poolformer_sail()}, {"apple", "aim", aim_apple()}};
}

}  // namespace tessera::train
