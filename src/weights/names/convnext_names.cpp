// ConvNeXt. Our names are timm's.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

// The papers' code.
NameRows convnext_facebook() {
  return joined({{{"norm.*", "head.norm.*"},
                  {"head.*", "head.fc.*"},
                  {"downsample_layers.0.**", "stem.**"},
                  {"downsample_layers.{}.**", "stages.{}.downsample.**"}},
                 below("stages.{}.{}.", "stages.{}.blocks.{}.",
                       {{"dwconv.*", "conv_dw.*"},
                        {"pwconv1.*", "mlp.fc1.*"},
                        {"pwconv2.*", "mlp.fc2.*"},
                        {"grn.gamma", "mlp.grn.weight"},
                        {"grn.beta", "mlp.grn.bias"},
                        {"**", "**"}})});
}

// One index counts both the stages and the downsampling layers between them.
NameRows convnext_torchvision() {
  return joined({{{"classifier.0.*", "head.norm.*"},
                  {"classifier.2.*", "head.fc.*"},
                  {"features.0.**", "stem.**"},
                  {"features.{*2}.**", "stages.{}.downsample.**"}},
                 below("features.{*2+1}.{}.", "stages.{}.blocks.{}.",
                       {{"block.0.*", "conv_dw.*"},
                        {"block.2.*", "norm.*"},
                        {"block.3.*", "mlp.fc1.*"},
                        {"block.5.*", "mlp.fc2.*"},
                        {"layer_scale", "gamma"}})});
}

NameRows transformers_convnext() {
  return joined({{{"embeddings.patch_embeddings.*", "stem.0.*"},
                  {"embeddings.layernorm.*", "stem.1.*"},
                  {"encoder.stages.{}.downsampling_layer.**", "stages.{}.downsample.**"},
                  {"layernorm.*", "head.norm.*"}},
                 below("encoder.stages.{}.layers.{}.", "stages.{}.blocks.{}.",
                       {{"layer_scale_parameter", "gamma"},
                        {"dwconv.*", "conv_dw.*"},
                        {"layernorm.*", "norm.*"},
                        {"pwconv1.*", "mlp.fc1.*"},
                        {"pwconv2.*", "mlp.fc2.*"},
                        {"grn.*", "mlp.grn.*", {}, "", true}})});
}

NameRows convnext_transformers() {
  return joined({below("convnext.", "", transformers_convnext()),
                 {{"classifier.*", "head.fc.*"}},
                 older(below("convnextv2.", "", transformers_convnext())),
                 older(transformers_convnext())});
}

}  // namespace

std::vector<NameTable> convnext_names() {
  return {{"facebook", "convnext", convnext_facebook()},
          {"torchvision", "convnext", convnext_torchvision()},
          {"transformers", "convnext", convnext_transformers()}};
}

}  // namespace tessera::train
