#include "models/names/resnet_names.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace tessera::models {
namespace {

// detectron2's name of a tensor behind "stem." or "res2.": "conv1.weight", "conv1.norm.weight", "shortcut.norm.bias".
std::string detectron_part(std::string_view part) {
  const bool shortcut = part.starts_with("shortcut.");
  const size_t dot = part.find('.');
  const std::string_view which = part.substr(0, dot), rest = part.substr(dot + 1);
  const bool norm = rest.starts_with("norm.");
  if (shortcut) return norm ? text("downsample.1.", rest.substr(5)) : text("downsample.0.", rest);
  return norm ? text("bn", which.substr(4), ".", rest.substr(5)) : text(which, ".", rest);
}

// mmseg's deep stem is one sequence of convolutions, norms and ReLU: "stem.3.weight" is its second convolution.
std::string sequence_part(std::string_view part) {
  const int64_t place = part[0] - '0';
  const bool norm = place % 3 == 1;
  return text(norm ? "bn" : "conv", place / 3 + 1, part.substr(1));
}

// Caffe's name of a tensor as detectron2 has it: "res2_0_branch2a_bn_s" as "res2.0.conv1.norm.weight". Others stay.
std::string as_detectron(std::string_view name) {
  using Pair = std::pair<std::string_view, std::string_view>;
  static constexpr Pair kinds[] = {{"_bn_s", ".norm.weight"},
                                   {"_bn_gamma", ".norm.weight"},
                                   {"_bn_b", ".norm.bias"},
                                   {"_bn_beta", ".norm.bias"},
                                   {"_bn_rm", ".norm.running_mean"},
                                   {"_bn_running_mean", ".norm.running_mean"},
                                   {"_bn_riv", ".norm.running_var"},
                                   {"_bn_running_var", ".norm.running_var"},
                                   {"_w", ".weight"},
                                   {"_b", ".bias"}};
  static constexpr Pair places[] = {
      {"conv1", "stem.conv1"}, {"res_conv1", "stem.conv1"}, {"fc1000", "head.fc"}, {"pred", "head.fc"}};
  static constexpr Pair parts[] = {
      {"branch1", "shortcut"}, {"branch2a", "conv1"}, {"branch2b", "conv2"}, {"branch2c", "conv3"}};
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                 [&](const Pair& k) { return name.ends_with(k.first); });
  if (kind == std::end(kinds) || name.find('.') != std::string_view::npos) return std::string(name);
  const std::string_view place = name.substr(0, name.size() - kind->first.size());
  for (const auto& [theirs, ours] : places)
    if (place == theirs) return text(ours, kind->second);
  const std::vector<std::string> steps = split(place, '_');  // "res2", "0", "branch2a"
  if (steps.size() == 3)
    for (const auto& [theirs, ours] : parts)
      if (steps[2] == theirs) return text(steps[0], ".", steps[1], ".", ours, kind->second);
  return std::string(name);
}

// Names of detectron2 ("backbone.bottom_up.res2.0.conv1.norm.weight") and of OpenMMLab's programs ("stem.0.weight",
// "head.fc.weight"); others stay as they are.
std::string as_torchvision(std::string_view name) {
  constexpr std::string_view kBottomUp = "backbone.bottom_up.";
  if (name.starts_with(kBottomUp)) name.remove_prefix(kBottomUp.size());
  if (name.starts_with("head.fc.")) return std::string(name.substr(5));
  if (name.starts_with("stem.conv1.")) return detectron_part(name.substr(5));
  if (name.size() > 6 && name.starts_with("stem.") && name[5] >= '0' && name[5] <= '8' && name[6] == '.')
    return sequence_part(name.substr(5));
  const bool stage =
      name.size() > 5 && name.starts_with("res") && name[3] >= '2' && name[3] <= '9' && name[4] == '.';
  const size_t block = stage ? name.find('.', 5) : std::string_view::npos;
  if (block == std::string_view::npos) return std::string(name);
  return text("layer", name[3] - '1', name.substr(4, block - 3), detectron_part(name.substr(block + 1)));
}

}  // namespace

// PyTorch counts the batches that a norm has seen. Files of CLIP hold a text tower besides.
std::string resnet_name(const std::string& published) {
  static constexpr std::string_view texts[] = {"transformer.resblocks.", "token_embedding.", "ln_final."};
  static constexpr std::string_view single[] = {
      "positional_embedding", "text_projection", "logit_scale", "attn_mask",
      "input_resolution",     "context_length",  "vocab_size"};
  if (published.ends_with(".num_batches_tracked") || published.ends_with("_momentum")) return "";
  if (published == "conv1_b") return "";  // zeros in front of a norm
  for (const std::string_view text : texts)
    if (published.starts_with(text)) return "";
  for (const std::string_view name : single)
    if (published == name) return "";
  return published.starts_with("visual.") ? published.substr(7) : as_torchvision(as_detectron(published));
}

}  // namespace tessera::models
