// The residual block that VisionLLaMA, its pyramid, iLLaMA, DARL and Twins share around their attention:
//   y = x + gamma_1 * attention(norm1(x)),   x' = y + gamma_2 * mlp(norm2(y))
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/base/encoder.h"
#include "models/base/family.h"
#include "models/base/model.h"
#include "nn/attention.h"
#include "nn/linear.h"

namespace tessera::models {

// gelu: fc2(gelu(fc1 x)); swiglu: LLaMA's; swiglu_packed: with gate and up in one matrix, and biases.
enum class MlpKind { swiglu, gelu, swiglu_packed };
// The same choice for a family without the packed form.
enum class PlainMlp { swiglu, gelu };
inline MlpKind kind_of(PlainMlp mlp) { return mlp == PlainMlp::gelu ? MlpKind::gelu : MlpKind::swiglu; }

struct ResidualBlockOptions {
  int64_t dim = 0;
  NormKind norm = NormKind::layer;
  double eps = 1e-6;
  MlpKind mlp = MlpKind::swiglu;
  int64_t hidden = 0;  // width inside the MLP
  nn::SwiGluNames names = nn::kVisionLlamaNames;
  double init_values = 0;  // initial values of gamma_1 and gamma_2, 0 = neither
  double drop_path = 0;
  int64_t index = 0;      // number among all blocks of the model; keys the draws of drop path
  std::string name = {};  // "blocks.3": prefix of the names of taps
};

// Returns the width inside the MLP: mlp_ratio * dim for gelu, else by the LLaMA rule.
int64_t default_hidden(MlpKind mlp, int64_t dim, double mlp_ratio);

// Parameters norm1, norm2, mlp, gamma_1, gamma_2; a derived block adds the attention.
class ResidualBlock : public torch::nn::Module {
 public:
  explicit ResidualBlock(const ResidualBlockOptions& options);

 protected:
  // Computes the branch on normed tokens and applies the epilogue. `samples` [kept] int64 are the batch
  // indices of the samples that it gets; undefined = all.
  using Mixer = std::function<torch::Tensor(const nn::DeferredNorm& normed, const nn::Epilogue& epilogue,
                                            const torch::Tensor& samples)>;
  // Runs both branches on x [batch, …, dim], with stochastic depth.
  torch::Tensor apply(const torch::Tensor& x, const Context& context, const Mixer& attention);
  int64_t mlp_macs() const;  // per token
  const std::string& tap_name() const { return options_.name; }
  torch::Tensor feed_forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue);

  Norm norm1_, norm2_;

 private:
  ResidualBlockOptions options_;
  torch::Tensor gamma_1_, gamma_2_;
  nn::Mlp gelu_{nullptr};
  nn::SwiGlu swiglu_{nullptr};
  nn::PackedSwiGlu packed_{nullptr};
};

// The windows of a map inside which a block attends: see models/base/windows.h.
struct BlockWindows {
  int64_t side = 0;                 // side of a window in patches
  nn::AttentionExtras inside = {};  // for the tokens of one window: their rotation and mask
};

// The block with attention among all tokens, parameters attn.qkv and attn.proj.
class AttentionBlock : public ResidualBlock {
 public:
  AttentionBlock(const ResidualBlockOptions& options, int64_t heads, bool qkv_bias);
  torch::Tensor forward(const torch::Tensor& x, const nn::AttentionExtras& shared, const Context& context);
  // Like forward(), with attention inside windows of the grid; non-patch tokens attend to each other.
  torch::Tensor forward_in_windows(const torch::Tensor& x, const TokenPlaces& places,
                                   const BlockWindows& windows, const Context& context);
  // Runs one more token, x [batch, 1, dim] -> the same shape, with this rotation. It attends to the keys and
  // values in `state`, {} before the first token, and to its own, which are added there.
  torch::Tensor step(const torch::Tensor& x, const nn::Rotation& rotation, std::vector<torch::Tensor>& state);
  int64_t macs(int64_t tokens) const { return attn_->macs(tokens) + tokens * mlp_macs(); }
  // Counts attention in windows of `side` patches (0 = none), with `others` non-patch tokens.
  int64_t macs(int64_t rows, int64_t columns, int64_t side, int64_t others) const;

 protected:
  nn::Attention attn_{nullptr};
};

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::MlpKind> {
  static constexpr std::array names = {"swiglu", "gelu", "swiglu_packed"};
};
template <>
struct tessera::EnumNames<tessera::models::PlainMlp> {
  static constexpr std::array names = {"swiglu", "gelu"};
};
