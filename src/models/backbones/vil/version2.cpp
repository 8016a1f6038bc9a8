// Vision-LSTM 2 (Alkin et al. 2024, "Vision-LSTM: xLSTM as generic vision backbone"). Names of parameters are
// those of the published inference code.
//
//   x = patches W + positions
//   pair of blocks:  y = x + layer(norm(x))        top left to bottom right
//                    x' = y + flip(layer(norm(flip(y))))
//   layer:           proj_up, mLSTM mixer (ops/mlstm_mixer.h), proj_down
//   scores = head(legacy_norm([x_first, x_last] of norm(x)))
#include "core/text.h"
#include "models/backbones/vil/backbone.h"

namespace tessera::models {
namespace {

// In the published inference class, the eps of the last two norms are swapped relative to the training.
constexpr VilVersion kVersion{.pairs = true,
                              .conv_name = "conv",
                              .token_norm = "norm",
                              .read_norm = "legacy_norm",
                              .token_norm_is_legacy = false,
                              .token_eps = 1e-6,
                              .read_eps = 1e-5};

struct Vil final : VilBackbone {
  explicit Vil(const VilConfig& config) : VilBackbone(config, kVersion) {}
};

// The published checkpoint files hold the names of the training source.
std::string rename(const std::string& published) {
  static const std::string stack = "xlstm.blocks.", layer = ".xlstm.", norm = ".xlstm_norm.";
  if (published.starts_with("post_blocks_norm.")) return "norm." + published.substr(17);
  if (published.starts_with("xlstm.post_blocks_norm.")) return "norm." + published.substr(23);
  if (published.starts_with("head.0.")) return "legacy_norm." + published.substr(7);
  if (published.starts_with("head.1.")) return "head." + published.substr(7);
  std::string name = published;
  if (name.starts_with(stack)) name = name.substr(6);
  if (!name.starts_with("blocks.")) return published;
  const size_t dot = name.find('.', 7);
  const auto number = parse_int(std::string_view(name).substr(7, dot == std::string::npos ? 0 : dot - 7));
  if (!number) return published;
  std::string rest = name.substr(dot);
  const bool theirs = rest.starts_with(layer) || rest.starts_with(norm);
  if (!theirs) return published;
  if (rest.starts_with(layer))
    rest = ".layer." + rest.substr(layer.size());
  else
    rest = ".norm." + rest.substr(norm.size());
  if (const size_t conv = rest.find(".conv1d"); conv != std::string::npos) rest.replace(conv, 7, ".conv");
  const char* direction = *number % 2 == 0 ? ".rowwise_from_top_left" : ".rowwise_from_bot_right";
  return "blocks." + std::to_string(*number / 2) + direction + rest;
}

}  // namespace

Family vil_family() {
  Family family = make_family<Vil, VilConfig>(
      "vil", "Vision-LSTM 2",
      {
          {"vil_tiny_patch16_224", {"vil2-tiny", "vil2-tiny-e400"}, table({{"dim", 192}})},
          {"vil_small_patch16_224", {"vil2-small"}, table({{"dim", 384}})},
          {"vil_base_patch16_224", {"vil2-base"}, table({{"dim", 768}})},
          {"vil_large_patch16_224", {}, table({{"dim", 1024}, {"depth", 24}})},  // section A.1: 48 blocks
      },
      rename);
  family.preprocess = table({{"crop", 1.0}});  // Table 10
  return family;
}

}  // namespace tessera::models
