// The mLSTM cell (Beck et al. 2024) in its parallel form, stabilised as in the published Vision-LSTM code.
//
// With F_t = sum_{r<=t} log sigmoid(f_r):
//   log D_ts = F_t - F_s + i_s for s <= t, else -inf          m_t = max_s log D_ts
//   C_ts = (q_t . k_s / sqrt(d)) exp(log D_ts - m_t)          n_t = max(|sum_s C_ts|, exp(-m_t))
//   h_t = sum_s C_ts v_s / (n_t + eps)
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

struct MlstmOptions {
  double eps = 1e-6;
  bool rowwise = true;  // false: one maximum m over the whole matrix of a head
};

// q, k, v [batch, heads, tokens, d]; input and forget gates (pre-activations) [batch, heads, tokens] -> h
// like v. Any floating dtype, any device; built of ATen operations, so every gradient is autograd's.
torch::Tensor mlstm_parallel(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                             const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                             const MlstmOptions& options = {});

}  // namespace tessera::ops
