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

namespace tessera::models::vil {
namespace {

// In the published inference class, the eps of the last two norms are swapped compared with training.
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

}  // namespace

Family family() {
  Family family = make_family<Vil, VilConfig>(
      "vil", "Vision-LSTM 2",
      {
          {"vil_tiny_patch16_224", {"vil2-tiny", "vil2-tiny-e400"}, table({{"dim", 192}})},
          {"vil_small_patch16_224", {"vil2-small"}, table({{"dim", 384}})},
          {"vil_base_patch16_224", {"vil2-base"}, table({{"dim", 768}})},
          {"vil_large_patch16_224", {}, table({{"dim", 1024}, {"depth", 24}})},  // section A.1: 48 blocks
      });
  family.preprocess = table({{"crop", 1.0}});  // Table 10
  return family;
}

}  // namespace tessera::models::vil
