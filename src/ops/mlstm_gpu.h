// The mLSTM cell, norm, skip and gate of a Vision-LSTM layer by a GPU's kernels, without gradients.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::ops {

struct MlstmGpuInputs {
  torch::Tensor q, k, v;                      // [batch, tokens, heads d]
  torch::Tensor i, f;                         // preactivations, [batch, heads, tokens]
  torch::Tensor a, z;                         // [batch, tokens, heads d]
  torch::Tensor norm_scale, norm_bias, skip;  // [heads d]; the bias may be undefined
  int64_t heads = 1;
  double eps = 1e-6, norm_eps = 1e-5;
};
// y = (norm(h) norm_scale + norm_bias + skip a) silu(z), or h alone if no kernel has the rest; both undefined if none
// has the cell: off the GPU, if gradients are recorded, for other types than bfloat16 and other head dims.
struct MlstmGpuResult {
  torch::Tensor y, h;  // [batch, tokens, heads d]
};
MlstmGpuResult mlstm_on_gpu(const MlstmGpuInputs& in);

}  // namespace tessera::ops
