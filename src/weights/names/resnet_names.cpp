// ResNets. Our names are torchvision's.
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows resnet_detectron2() {
  return joined({{{"stem.conv{}.norm.*", "bn{}.*"}, {"stem.conv{}.*", "conv{}.*"}},
                 below("res{+1}.{}.", "layer{}.{}.",
                       {{"conv{}.norm.*", "bn{}.*"},
                        {"conv{}.*", "conv{}.*"},
                        {"shortcut.norm.*", "downsample.1.*"},
                        {"shortcut.*", "downsample.0.*"}})});
}

using Pair = std::pair<std::string_view, std::string_view>;

// A convolution of Caffe and the norm after it, under its first names and, for reading, later ones.
NameRows caffe_layer(std::string_view theirs, std::string_view norm, std::string_view ours_conv,
                     std::string_view ours_norm) {
  static constexpr std::array<Pair, 8> kinds = {{{"_bn_s", ".weight"},
                                                 {"_bn_b", ".bias"},
                                                 {"_bn_rm", ".running_mean"},
                                                 {"_bn_riv", ".running_var"},
                                                 {"_bn_gamma", ".weight"},
                                                 {"_bn_beta", ".bias"},
                                                 {"_bn_running_mean", ".running_mean"},
                                                 {"_bn_running_var", ".running_var"}}};
  NameRows rows;
  for (size_t i = 0; i < kinds.size(); ++i)
    rows.push_back({text(norm, kinds[i].first), text(ours_norm, kinds[i].second), {}, "", i >= 4});
  rows.push_back({text(theirs, "_w"), text(ours_conv, ".weight")});
  return rows;
}

// Detectron's pickles. "conv1_b" is a bias of zeros before a norm.
NameRows resnet_caffe() {
  NameRows rows = joined({{{"**_momentum", ""},
                           {"conv1_b", ""},
                           {"fc1000_w", "fc.weight"},
                           {"fc1000_b", "fc.bias"},
                           {"pred_w", "fc.weight", {}, "", true},
                           {"pred_b", "fc.bias", {}, "", true}},
                          caffe_layer("conv1", "res_conv1", "conv1", "bn1"),
                          older(caffe_layer("res_conv1", "conv1", "conv1", "bn1"))});
  for (const auto& [theirs, number] : {Pair{"branch2a", "1"}, {"branch2b", "2"}, {"branch2c", "3"}}) {
    const std::string block = text("res{+1}_{}_", theirs), ours = "layer{}.{}.";
    rows = joined({rows, caffe_layer(block, block, text(ours, "conv", number), text(ours, "bn", number))});
    rows.push_back({block + "_b", text(ours, "conv", number, ".bias")});
  }
  const std::string shortcut = "res{+1}_{}_branch1";
  return joined(
      {rows, caffe_layer(shortcut, shortcut, "layer{}.{}.downsample.0", "layer{}.{}.downsample.1")});
}

// OpenMMLab's deep stem is one sequence of convolutions, norms and ReLU.
const NameRows kDeepStem = {{"stem.0.*", "conv1.*"}, {"stem.1.*", "bn1.*"},   {"stem.3.*", "conv2.*"},
                            {"stem.4.*", "bn2.*"},   {"stem.6.*", "conv3.*"}, {"stem.7.*", "bn3.*"}};
const NameRows kHead = {{"head.fc.*", "fc.*"}};

// CLIP's files also contain a text tower.
NameRows resnet_openai() {
  return {{"visual.**", "**"},
          {"transformer.resblocks.**", ""},
          {"token_embedding.*", ""},
          {"ln_final.*", ""},
          {"positional_embedding", ""},
          {"text_projection", ""},
          {"logit_scale", ""},
          {"attn_mask", ""},
          {"input_resolution", ""},
          {"context_length", ""},
          {"vocab_size", ""}};
}

NameRows transformers_resnet() {
  const std::string layer = "encoder.stages.{}.layers.{}.", ours = "layer{+1}.{}.";
  return joined(
      {{{"embedder.embedder.convolution.*", "conv1.*"}, {"embedder.embedder.normalization.*", "bn1.*"}},
       below(layer, ours,
             {{"layer.{}.convolution.*", "conv{+1}.*"},
              {"layer.{}.normalization.*", "bn{+1}.*"},
              {"shortcut.convolution.*", "downsample.0.*"},
              {"shortcut.normalization.*", "downsample.1.*"}})});
}

NameRows resnet_transformers() {
  return joined({{{"**.num_batches_tracked", ""}},
                 below("resnet.", "", transformers_resnet()),
                 {{"classifier.1.*", "fc.*"}},
                 older(transformers_resnet())});
}

}  // namespace

std::vector<NameTable> resnet_names() {
  return {{"torchvision", "resnet", {{"**.num_batches_tracked", ""}}},  // PyTorch's batch norms count batches
          {"detectron2", "resnet",
           joined({resnet_detectron2(), older(below("backbone.bottom_up.", "", resnet_detectron2()))})},
          {"caffe", "resnet", resnet_caffe()},
          {"openmmlab", "resnet", joined({older(kDeepStem), kHead})},
          {"openmmlab", kDeepResnet, joined({kDeepStem, kHead})},
          {"openai", "resnet", resnet_openai()},
          {"transformers", "resnet", resnet_transformers()}};
}

}  // namespace tessera::train
