// The mixer of Mamba (Gu & Dao 2023) in one or two directions, as in Vision Mamba.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/linear.h"

namespace tessera::nn {

// none: forward only. v1: also backward, with a separate A. v2: also backward, with separate convolution,
// projections, A and D.
enum class MambaDirections { none, v1, v2 };

struct MambaOptions {
  int64_t dim = 192, state = 16, kernel = 4;
  int64_t inner = 384, dt_rank = 12;
  MambaDirections directions = MambaDirections::v2;
  bool divide = true;  // v2: the mean of both directions instead of their sum
  bool conv_bias = true, bias = false;
  double init_values = 0;  // initial value of the layer scale, 0 = none
};

//   [x; z] = in_proj(tokens),  a = silu(conv1d(x)),  [dt; B; C] = x_proj(a)
//   y = scan(a, dt_proj(dt), -exp(A_log), B, C, D) silu(z),  out = gamma out_proj(y of both directions)
// Parameters have the published names; those of the backward direction end in _b.
class MambaImpl : public torch::nn::Module {
 public:
  explicit MambaImpl(const MambaOptions& options);
  // x [batch, tokens, dim] -> the same. `flipped`: as if the tokens were flipped before and after.
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {}, bool flipped = false) const;
  int64_t macs() const;  // multiply-adds per token; a state counts three

 private:
  struct Direction {
    torch::Tensor conv_weight, conv_bias, a_log, d;
    Linear x_proj{nullptr}, dt_proj{nullptr};
  };
  Direction make_direction(const char* suffix);
  torch::Tensor walk(const Direction& by, const torch::Tensor& x, const torch::Tensor& z, bool reverse) const;

  MambaOptions options_;
  Linear in_proj_{nullptr}, out_proj_{nullptr};
  Direction forward_, backward_;
  torch::Tensor a_b_log_, gamma_;
};
TORCH_MODULE(Mamba);

}  // namespace tessera::nn
