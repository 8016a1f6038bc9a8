// Vision-LSTM, version 1 (Alkin et al. 2024, the preprint's first version). Parameters have the names of the
// published inference code. Differences from version 2: a causal convolution over the sequence, no
// biases in projections and block norms, single numbered blocks, and the last norms
//
//   scores = head(norm(mean of first and last token of legacy_norm(x)))
//
// With `directions` and `traversal` these are also the block stacks of the training source: alternation
// (alternating), bidirectional and quaddirectional (in_layer).
#include "models/backbones/vil/backbone.h"

namespace tessera::models::vil1 {
namespace {

constexpr VilVersion kVersion{.pairs = false,
                              .conv_name = "conv1d",
                              .token_norm = "legacy_norm",
                              .read_norm = "norm",
                              .token_norm_is_legacy = true,
                              .token_eps = 1e-5,
                              .read_eps = 1e-6};

struct Config : VilConfig {
  Config() {
    depth = 24;
    pooling = VilPooling::bilateral_avg;
    conv_kind = nn::MlstmConv::causal;
    conv_kernel = 4;
    norm_bias = proj_bias = false;
  }
};

struct Vil1 final : VilBackbone {
  explicit Vil1(const Config& config) : VilBackbone(config, kVersion) {}
};

Value size(int64_t dim, int64_t depth, int64_t stride = 0) {
  return table({{"dim", dim}, {"depth", depth}, {"stride", stride}});
}

}  // namespace

Family family() {
  Family family = make_family<Vil1, Config>(
      "vil1", "Vision-LSTM, version 1",
      {
          {"vil1_tiny_patch16_224", {"vil-tiny", "vil-tiny-e400"}, size(192, 24)},
          {"vil1_tinyplus_patch16_224", {"vil-tinyplus", "vil-tinyplus-e400"}, size(192, 29)},
          {"vil1_tinyplus_patch16_stride8_224", {"vil-tinyplus-stride8"}, size(192, 29, 8)},
          {"vil1_small_patch16_224", {"vil-small"}, size(384, 24)},
          {"vil1_smallplus_patch16_224", {"vil-smallplus"}, size(384, 26)},
          {"vil1_smallplus_patch16_stride8_224", {"vil-smallplus-stride8"}, size(384, 26, 8)},
          {"vil1_base_patch16_224", {"vil-base"}, size(768, 24)},
          {"vil1_base_patch16_stride8_224", {"vil-base-stride8"}, size(768, 24, 8)},
      });
  family.preprocess = table({{"crop", 1.0}});  // as version 2
  return family;
}

}  // namespace tessera::models::vil1
