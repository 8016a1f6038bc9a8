// The calls of GPU kernels: raw pointers of the device, shapes and constants. C headers only: nvcc includes it.
//
// Rows have contiguous columns; widths and strides count numbers. Tensors of Element are float or bfloat16.
#pragma once

#include <stdint.h>

#include "kernels/types.h"

namespace tessera::kernels::gpu {

// Returns the number of parts that a sum over rows is made of. They are added in order, and depend on the rows alone: equal
// bits.
constexpr int64_t row_parts(int64_t rows) {
  return rows <= 0 ? 0 : (rows + 31) / 32 < 264 ? (rows + 31) / 32 : 264;
}

// y = (x - mean) / sqrt(variance + eps) weight + bias, or without the mean (RMSNorm), row by row.
struct NormForward {
  int64_t rows = 0, width = 0;
  Rows x;
  const float *weight = nullptr, *bias = nullptr;  // (width), or (samples,width); null: ones, zeros
  float eps = 0;
  bool centred = true;
  RowsOut y;
  int64_t sample_rows = 0;  // rows of a sample; 0: one weight and bias for all
};
// Gradients of it; mean and variance are made again. partial: samples x row_parts(rows of a sample) x 2 x width floats of scratch,
// needed for dweight or dbias.
struct NormBackward {
  int64_t rows = 0, width = 0;
  Rows x, dy;
  const float* weight = nullptr;
  float eps = 0;
  bool centred = true;
  RowsOut dx;
  float *dweight = nullptr, *dbias = nullptr;  // as weight, overwritten; null: skipped
  float* partial = nullptr;
  int64_t sample_rows = 0;
};

// y = residual + scale x: the end of a branch with LayerScale (Touvron et al. 2021), or with a gate for each sample (Peebles
// & Xie 2023).
struct ResidualForward {
  int64_t rows = 0, width = 0;
  Rows x, residual;
  const float* scale = nullptr;  // (width), or (samples,width)
  int64_t sample_rows = 0;       // rows of a sample; 0: one scale for all
  RowsOut y;
};
// dx = scale dy, dscale = sums of x dy; the residual's gradient is dy. partial: samples x row_parts(rows of a sample) x width
// floats of scratch, needed for dscale.
struct ResidualBackward {
  int64_t rows = 0, width = 0;
  Rows x, dy;
  const float* scale = nullptr;
  int64_t sample_rows = 0;
  RowsOut dx;
  float* dscale = nullptr;  // as scale, overwritten; null: skipped
  float* partial = nullptr;
};

// The patches of images (batch,channels,height,width) as rows of a matrix (Dosovitskiy et al. 2021): (batch, rows, columns) x
// (channel, line, pixel). Pixels after the last whole patch are left out. Element strides.
struct PatchRows {
  int64_t batch = 0, channels = 0, rows = 0, columns = 0, patch = 0;  // rows and columns of patches
  Element element = Element::f32;                                     // of images
  const void* images = nullptr;
  int64_t sample = 0, channel = 0, line = 0, pixel = 1;
  uint16_t* y = nullptr;  // bfloat16, contiguous
};

// Rotates adjacent pairs of channels (Su et al. 2021): (a, b) -> (a cos - b sin, a sin + b cos), or back. Channels from
// `rotated` on are copied. Element strides; a table's stride of 0: the same for all.
struct Rotation {
  int64_t batch = 0, heads = 0, tokens = 0, channels = 0, rotated = 0;
  bool inverse = false;
  Element element = Element::f32;              // of x and y
  const void* x = nullptr;                     // (B,H,T,C), contiguous channels
  int64_t sample = 0, head = 0, token = 0;     // strides of x
  const float *cos = nullptr, *sin = nullptr;  // (B or 1,H or 1,T,rotated / 2)
  int64_t table_sample = 0, table_head = 0;    // strides of both
  void* y = nullptr;                           // (B,H,T,C), contiguous
};

// bfloat16 (B,H,T,D) with contiguous channels; element strides.
template <class Pointer>
struct HeadsOf {
  Pointer data = nullptr;
  int64_t sample = 0, head = 0, token = 0;
};
// out = softmax(scale q k^T) v (Vaswani et al. 2017, eq. 1). With `causal` query i sees the keys up to first_query + i.
// future_weight: a factor after the softmax for keys after that one (iLLaMA's soft mask).
struct AttentionForward {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, dim = 0;
  float scale = 1;
  bool causal = false;
  int64_t first_query = 0;
  float future_weight = 1;
  HeadsOf<const uint16_t*> q, k, v;
  HeadsOf<uint16_t*> out;
  float* lse = nullptr;  // (B,H,queries): base-2 logarithms of the rows' sums, for the gradients, or null
};
// Its gradients. Overwrites the outputs.
struct AttentionBackward {
  AttentionForward of;  // the call of the forward pass, with its outputs
  HeadsOf<const uint16_t*> dout;
  HeadsOf<uint16_t*> dq, dk, dv;
};

// Attention of a new token of each sample to a cache that it joins (kernels/cached_attention/cached_attention.h). The number of
// tokens before it is in the device's memory, so that the calls of all tokens are equal and a graph can repeat them.
struct CachedAttention {
  int64_t batch = 0, heads = 0, kv_heads = 0, room = 0,
          dim = 0;  // room: tokens that the cache has memory for
  float scale = 1;
  const int64_t* before = nullptr;           // (1), below `room`; else nothing is computed
  HeadsOf<const uint16_t*> q, new_k, new_v;  // one token
  HeadsOf<uint16_t*> k, v;                   // the cache (B,kv_heads,room,D)
  HeadsOf<uint16_t*> out;
  const float *cos = nullptr, *sin = nullptr;  // (B or 1,D / 2), null: no rotation
  int64_t angles_sample = 0;
  int64_t window = 0;             // the newest `window` keys are seen, 0 = all
  const uint8_t* seen = nullptr;  // (B,room) 0 or 1, null: all
  int64_t seen_sample = 0;
  const float* slopes = nullptr;  // (H), null: none
  float* partial = nullptr;       // scratch: cached_numbers() floats
};
constexpr int64_t kCachedChunk = 128,
                  kCachedGroup = 16;  // keys of a block; the most queries of a head of keys
constexpr int64_t cached_chunks(int64_t room) { return (room + kCachedChunk - 1) / kCachedChunk; }
// Sums of values of each query and chunk, then the largest score and the sum of powers.
constexpr int64_t cached_numbers(const CachedAttention& of) {
  return of.batch * of.heads * cached_chunks(of.room) * (of.dim + 2);
}
constexpr float* cached_stats(const CachedAttention& of) {
  return of.partial + of.batch * of.heads * cached_chunks(of.room) * of.dim;
}

// y = f(x), or f(x) gate.
enum class ActivationKind : int32_t { gelu, gelu_tanh, silu };
struct ActivationForward {
  ActivationKind kind = ActivationKind::gelu;
  int64_t rows = 0, width = 0;
  Rows x, gate;  // gate: null data, none
  RowsOut y;
};
struct ActivationBackward {
  ActivationKind kind = ActivationKind::gelu;
  int64_t rows = 0, width = 0;
  Rows x, gate, dy;
  RowsOut dx, dgate;  // dgate if there is a gate
};

// One step of an optimiser over many tensors of floats, as in optim/optimiser_adam.h, optimiser_sgd.cpp (SGD and LARS) and
// optimiser_lamb.cpp.
enum class OptimiserRule : int32_t { none, adam, sgd, lars, lamb };
struct OptimiserTensor {
  float* p;
  const float* g;
  float *m, *v;    // moments; m is SGD's buffer, or null without momentum
  float* largest;  // AMSGrad's largest v, or null
  float* average;  // a moving average of p, or null
  uint16_t* half;  // p in bfloat16, or null
  int64_t count;
  int64_t first;          // blocks of kOptimiserBlock numbers before this tensor
  int64_t slot;           // its place in the step's counts
  float rate, decay, l2;  // step size lr rate;  p <- p - lr decay p;  l2 p is added to g, or to LAMB's update
  float updates;          // its own count of updates, with this one; 0: the step's
  int32_t adapts;         // 1: with a trust ratio
  int32_t reserved;
};
constexpr int64_t kOptimiserBlock = 2048;
struct OptimiserStep {
  OptimiserRule rule = OptimiserRule::none;
  const OptimiserTensor* tensors =
      nullptr;  // on the device: equal in every step if gradients keep their memory
  int64_t count = 0, blocks = 0;
  float lr = 0, decay_factor = 1;  // decay_factor: of decay and l2
  float updates = 1;               // this update's number
  const double* counts =
      nullptr;  // the updates of all slots on the device, instead of those of the host; or null
  // Decays of the moments and the factors of g and g^2, which floats would round; beta1 is SGD's momentum.
  float beta1 = 0, rest1 = 0, beta2 = 0, rest2 = 0, eps = 0;
  float log_beta1 = 0, log_beta2 = 0;  // bias corrections are 1 - beta^t; -infinity: none
  int32_t nesterov = 0, clips_trust = 0;
  float trust = 1, trust_eps = 0;
  const float* scale =
      nullptr;  // factor of gradients, on the device; not finite: p, moments and average do not change
  const float* share = nullptr;  // average <- average + share (p - average), on the device
  // Rules with a trust ratio: workspace of 2 numbers a block, then one a tensor.
  float* sums = nullptr;
};

// The inputs of an mLSTM mixer's cell (kernels/mlstm_mixer/mlstm_mixer.h): a = silu(conv(x)), q and k by blocks of 4
// channels from a, v from x, and the gates' preactivations from [q, k, v]. The convolution covers `kernel` tokens up to each
// one, or with columns > 0 a square of the grid; `reverse` mirrors it.
struct MixerInputs {
  int64_t batch = 0, tokens = 0, channels = 0, heads = 0;
  int64_t kernel = 0, columns = 0;
  bool reverse = false;
  const uint16_t* x = nullptr;  // bfloat16 (B,T,C)
  int64_t sample = 0, row = 0;  // strides of x in samples and tokens
  // (kernel,C) or (kernel,kernel,C); (C/4,4,4) each; (H,3C) each. A bias may be null.
  const float *conv_weight = nullptr, *conv_bias = nullptr;
  const float *q_weight = nullptr, *q_bias = nullptr, *k_weight = nullptr, *k_bias = nullptr;
  const float *v_weight = nullptr, *v_bias = nullptr;
  const float *input_weight = nullptr, *input_bias = nullptr, *forget_weight = nullptr,
              *forget_bias = nullptr;
  uint16_t *a = nullptr, *q = nullptr, *k = nullptr, *v = nullptr;  // bfloat16 (B,T,C), contiguous
  float *igate = nullptr, *fgate = nullptr;                         // (B,H,T)
};

// The gradients of all of them. Overwrites the outputs; scratch has any contents.
struct MixerInputsBackward {
  MixerInputs of;  // the call of the forward pass, with its outputs a, q, k and v
  const uint16_t *da = nullptr, *dq = nullptr, *dk = nullptr,
                 *dv = nullptr;                      // bfloat16 (B,T,C); da may be null
  const float *digate = nullptr, *dfgate = nullptr;  // (B,H,T)
  uint16_t* dx = nullptr;                            // bfloat16 (B,T,C), contiguous
  // mixer_numbers() gradients, or null: weight and bias of the convolution, of q, k and v, and the gates' weights, in their
  // layouts.
  float* dparameters = nullptr;
  // Scratch: 4 (B,T,C), and with dparameters row_parts(B T) times its size.
  uint16_t* totals = nullptr;
  float* partial = nullptr;
};
// Returns the number of taps of the convolution, and of all parameters without the gates' biases.
constexpr int64_t mixer_taps(const MixerInputs& of) { return of.kernel * (of.columns > 0 ? of.kernel : 1); }
constexpr int64_t mixer_numbers(const MixerInputs& of) {
  return of.channels * (mixer_taps(of) + 1 + 3 * 5 + 6 * of.heads);
}

// The mLSTM cell (kernels/mlstm/mlstm.h), and the norm of its head, skip and gate:
//   y = (norm(h) norm_weight + norm_bias + skip act) silu(z)
// Chunks of `chunk` tokens (a multiple of 64, at most 256); their first states come from MlstmStates.
struct MlstmCell {
  int64_t batch = 0, heads = 0, tokens = 0, key_dim = 0, value_dim = 0, chunk = 0;
  bool reverse = false;
  float eps = 1e-6f;
  const uint16_t *q = nullptr, *k = nullptr, *v = nullptr;  // bfloat16 (B,T,H,K), (B,T,H,V), contiguous
  const float *igate = nullptr, *fgate = nullptr;           // (B,H,T), preactivations
  // Before each chunk, in its order; null for one chunk without an initial state.
  const uint16_t* c = nullptr;                       // bfloat16 (B,H,chunks,K,V)
  const float *n = nullptr, *m = nullptr;            // (B,H,chunks,K), (B,H,chunks)
  uint16_t* h = nullptr;                             // bfloat16 (B,T,H,V), or null if there is y
  uint16_t* h_rest = nullptr;                        // what h's rounding left, for the gradients, or null
  float *normaliser = nullptr, *row_sign = nullptr;  // (B,H,T), in memory order, or null
  // After the cell; null y: nothing.
  const uint16_t *act = nullptr, *z = nullptr;                                // bfloat16 (B,T,H,V)
  const float *norm_weight = nullptr, *norm_bias = nullptr, *skip = nullptr;  // (H V); bias may be null
  float norm_eps = 0;
  uint16_t* y = nullptr;
};
// The state before each chunk, and after the last token.
struct MlstmStates {
  int64_t batch = 0, heads = 0, tokens = 0, key_dim = 0, value_dim = 0, chunk = 0;
  bool reverse = false;
  const uint16_t *k = nullptr, *v = nullptr;
  const float *igate = nullptr, *fgate = nullptr;
  const float *c0 = nullptr, *n0 = nullptr, *m0 = nullptr;  // float (B,H,K,V), (B,H,K), (B,H), or null
  uint16_t* c = nullptr;                                    // as in MlstmCell
  float *n = nullptr, *m = nullptr;
  float *last_c = nullptr, *last_n = nullptr, *last_m = nullptr;  // as c0, or null
};
// The gradients of the cell's h. Overwrites the outputs; scratch has any contents.
struct MlstmGradients {
  int64_t batch = 0, heads = 0, tokens = 0, key_dim = 0, value_dim = 0, chunk = 0;
  bool reverse = false;
  const uint16_t *q = nullptr, *k = nullptr, *v = nullptr;
  const float *igate = nullptr, *fgate = nullptr;
  const uint16_t* c = nullptr;  // as in MlstmCell
  const float *n = nullptr, *m = nullptr;
  const uint16_t *h = nullptr, *h_rest = nullptr;          // of MlstmCell, and the two after them
  const float *normaliser = nullptr, *row_sign = nullptr;  // (B,H,T)
  const uint16_t* dh = nullptr;                            // bfloat16 (B,T,H,V)
  uint16_t *dq = nullptr, *dk = nullptr, *dv = nullptr;    // bfloat16, as q, k, v
  float *digate = nullptr, *dfgate = nullptr;              // (B,H,T)
  // Scratch: (B,H,T), 2 mlstm_slices(K) (B,H,T), and with c: its size, the size of n, (B,H,chunks) of
  // mlstm_slices(K)^2.
  float *row_gradient = nullptr, *dots = nullptr;
  uint16_t* dc = nullptr;
  float *dn = nullptr, *crossing = nullptr;
};
// Returns the most slices of a head that blocks of their own compute.
constexpr int64_t mlstm_slices(int64_t dim) { return (dim + 63) / 64; }
constexpr int64_t chunks_of(int64_t tokens, int64_t chunk) { return (tokens + chunk - 1) / chunk; }

}  // namespace tessera::kernels::gpu
