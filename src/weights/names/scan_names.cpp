// Vision Mamba of its own code, and Vision-RWKV of OpenMMLab's: the backbone in a classifier, or alone.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows vrwkv_backbone() {
  return {{"pos_embed", "pos_embed"},
          {"patch_embed.projection.*", "patch_embed.proj.*"},
          {"layers.{}.**", "blocks.{}.**"},
          {"ln1.*", "ln1.*"}};
}

}  // namespace

std::vector<NameTable> scan_names() {
  return {
      {"hustvl", "vim", {{"layers.{}.**", "blocks.{}.**"}}},
      {"openmmlab", "vrwkv",
       joined(
           {below("backbone.", "", vrwkv_backbone()), {{"head.fc.*", "head.*"}}, older(vrwkv_backbone())})}};
}

}  // namespace tessera::train
