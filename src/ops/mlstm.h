// The mLSTM cell (Beck et al. 2024) in its three forms, stabilised as in the published Vision-LSTM code.
//
// With log f_t = log sigmoid(f_t) and F_t = log f_1 + … + log f_t:
//   log D_ts = F_t - F_s + i_s for s <= t, else -inf          m_t = max_s log D_ts
//   C_ts = (q_t . k_s / sqrt(d)) exp(log D_ts - m_t)          n_t = max(|sum_s C_ts|, exp(-m_t))
//   h_t = sum_s C_ts v_s / (n_t + eps)
// The equivalent recurrence, from a state (c, n, m) that represents all earlier tokens:
//   m_t = max(log f_t + m_(t-1), i_t)     a = exp(log f_t + m_(t-1) - m_t)     b = exp(i_t - m_t)
//   c_t = a c_(t-1) + b k_t v_t^T         n_t = a n_(t-1) + b k_t
//   h_t = (q_t c_t / sqrt(d)) / (max(|q_t . n_t / sqrt(d)|, exp(-m_t)) + eps)
// The chunkwise form is the parallel one inside a chunk and the recurrence between chunks.
//
// The three forms consist of ATen operations: any floating dtype, any device, gradients by autograd.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::ops {

struct MlstmOptions {
  double eps = 1e-6;
  bool rowwise = true;  // parallel form only. false: one maximum m over the whole matrix of a head
  // log f_t = f_t, as in the Vision-LSTM paper's equation 8, instead of log sigmoid(f_t).
  bool exponential_forget = false;
};

// The state after a sequence, with keys not divided by sqrt(d) and everything scaled by exp(-m): c [batch,
// heads, d, value d], n [batch, heads, d], m [batch, heads].
struct MlstmState {
  torch::Tensor c, n, m;
};
struct MlstmResult {
  torch::Tensor h;
  MlstmState last;
};

// The empty state before the first token. m is -inf for a fresh sequence, which makes the three forms agree
// exactly. The published recurrent and chunkwise kernels start at m = 0, which only changes the weight of
// eps.
enum class MlstmStart { fresh, published };
MlstmState mlstm_start(const torch::Tensor& k, const torch::Tensor& v, MlstmStart start = MlstmStart::fresh);

// In all forms: q, k [batch, heads, tokens, d], v [batch, heads, tokens, value d]; input and forget gates
// (pre-activations) [batch, heads, tokens] -> h like v.
torch::Tensor mlstm_parallel(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                             const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                             const MlstmOptions& options = {});

// Chunks of `chunk` tokens; the last one is shorter if they do not divide the sequence. One chunk for the
// whole sequence is the parallel form with states.
MlstmResult mlstm_chunkwise(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const torch::Tensor& input_gate, const torch::Tensor& forget_gate, int64_t chunk,
                            const MlstmState& initial, const MlstmOptions& options = {});

// One token: q, k [batch, heads, d], v [batch, heads, value d], gates [batch, heads].
MlstmResult mlstm_step(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                       const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                       const MlstmState& before, const MlstmOptions& options = {});

// The cell, norm, skip and gate of a Vision-LSTM layer by a GPU's kernels.
struct MlstmGpuInputs {
  torch::Tensor q, k, v;                      // [batch, tokens, heads d]
  torch::Tensor i, f;                         // preactivations, [batch, heads, tokens]
  torch::Tensor a, z;                         // [batch, tokens, heads d]
  torch::Tensor norm_scale, norm_bias, skip;  // [heads d]; the bias may be undefined
  int64_t heads = 1;
  double eps = 1e-6, norm_eps = 1e-5;
  bool reverse = false;        // walks from the last token to the first
  MlstmState* last = nullptr;  // receives the state after the last token of the walk
};
// y = (norm(h) norm_scale + norm_bias + skip a) silu(z); h alone, with gradients, if they are wanted or if no kernel
// has the rest; both undefined if none has the cell: off the GPU, for other types than bfloat16 and other head dims,
// for `last` with gradients.
struct MlstmGpuResult {
  torch::Tensor y, h;  // [batch, tokens, heads d]
};
MlstmGpuResult mlstm_on_gpu(const MlstmGpuInputs& inputs);

}  // namespace tessera::ops
