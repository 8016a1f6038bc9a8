// Predicts the pixels of a patch from the trunk's token before it: DARL's decoders (Li, Bornschein & Chen
// 2024, Section 4.1 and Table 2).
//
//   linear       x = z W + b                                 denoising: x = norm(z + E(x_s)) W + b
//   mlp          u' = u + mlp(norm(u)), u = z or z + E(x_s); x = norm(u_N) W + b
//   transformer blocks on the two tokens [z, E(x_s)], full attention; x = norm(u_N) W + b of the
//                second
// x_s is the noised patch; with `gamma` its noise level follows the pixels. z is the trunk's output after its
// last norm.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "models/base/residual_block.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {

enum class PatchDecoderKind { linear, mlp, transformer };

struct PatchDecoderOptions {
  PatchDecoderKind kind = PatchDecoderKind::linear;
  int64_t width = 0;   // widths of the trunk's tokens and of the decoder
  int64_t pixels = 0;  // pixel values per patch
  int64_t depth = 0;   // layers of the MLP, or blocks; 0 for linear
  int64_t heads = 1;   // attention heads of the transformer
  double mlp_ratio = 4;
  bool denoises = false, gamma = false;
  bool learns_start = false;  // has a vector `start` in place of the trunk's token before the first patch
};

class PatchDecoder final : public torch::nn::Module {
 public:
  explicit PatchDecoder(const PatchDecoderOptions& options);
  ~PatchDecoder() override;
  void initialise(uint64_t seed);  // initialises like the trunk, Xavier (Table 8)

  // Predicts from the trunk's tokens only, [..., width] -> [..., pixels]; for decoders that do not denoise.
  torch::Tensor forward(const torch::Tensor& z);

  // Computes once the part of all denoising steps that depends only on the trunk's tokens [batch, patches,
  // width].
  struct Condition;
  std::shared_ptr<const Condition> condition(const torch::Tensor& z);
  // Predicts once for the noised patches [batch, patches, pixels] at noise levels gamma [batch, patches, 1].
  torch::Tensor denoise(const Condition& condition, const torch::Tensor& noised, const torch::Tensor& gamma);

  const torch::Tensor& start() const { return start_; }  // [1, 1, width] or undefined
  const PatchDecoderOptions& options() const { return options_; }
  int64_t macs() const;  // per patch

 private:
  class PairBlock;
  class MlpLayer;
  torch::Tensor through_mlp(torch::Tensor u);

  PatchDecoderOptions options_;
  torch::Tensor start_;
  nn::Linear embed_{nullptr}, head_{nullptr};
  nn::LayerNorm norm_{nullptr};
  std::vector<std::shared_ptr<PairBlock>> pairs_;
  std::vector<std::shared_ptr<MlpLayer>> layers_;
};

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::PatchDecoderKind> {
  static constexpr std::array names = {"linear", "mlp", "transformer"};
};
