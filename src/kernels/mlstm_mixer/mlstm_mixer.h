// The mLSTM mixer: everything between the two large projections of a Vision-LSTM layer, as one operation,
// forward and backward:
//
//   x, z = halves of u                          u (B,T,2C)
//   a = silu(conv(x))                           depthwise: over the grid, or causal over the sequence
//   q, k = blocks of a, v = blocks of x         block-diagonal, 4x4 blocks
//   i, f = gates linear in [q; k; v]            a number per head
//   h = mlstm(q, k, v, i, f)                    mlstm/mlstm.h
//   y = (norm(h) (1 + w) + b + skip a) silu(z)  norm per head; y (B,T,C)
//
// With `reverse`, everything runs as if the tokens were flipped before and after; no memory is reordered.
//
// A sample goes through all steps while it is in the cache; from q, k and v on, one head after the other.
// Forward processes a long sample in pieces with the cell's state between them, so time and memory per token
// do not grow with the sequence. Forward reads u and writes y (and h if kept). Backward reads u and dy,
// recomputes the steps (except the cell, if h was kept) and writes du. Threads share the samples; with fewer
// samples than threads, they share the tokens and heads of each. Arithmetic is in float for every storage
// type of u, except the cell's products (mlstm_for). If u is bfloat16 and its pairs are faster, the
// projections and gates also multiply pairs, and a is kept in bfloat16.
//
// Usage: keep u, h, normaliser and row_sign from forward, and pass them to backward together with dy. h has
// B*T*C floats; leave all three null to save their memory and compute the cell twice. Gradients of parameters
// have the parameters' layouts, in float; null ones are skipped. The result does not depend on the machine's
// load, but the rounding of the parameters' gradients depends on the number of threads.
#pragma once

#include <array>

#include "kernels/mlstm_mixer/parts.h"
#include "kernels/types.h"

namespace tessera::kernels {

struct MlstmMixerShape {
  int64_t batch, rows, columns;  // T = rows * columns; rows = 1 for a sequence
  int64_t channels, heads;       // C, a multiple of 4 and of the heads
  int64_t kernel = 3;  // side of the convolution: kernel x kernel (odd) on the grid, or causal 1 x kernel
  bool causal = false;
  bool reverse = false;
  float norm_eps = 1e-5f, cell_eps = 1e-6f;
};

// The parameters in the published layouts, for any kind of holder: pointers to contiguous floats here,
// tensors in the wrappers. visit_mixer_parameters describes each.
template <class T>
struct MlstmMixerParametersOf {
  T conv_weight{}, conv_bias{};
  T q_weight{}, q_bias{}, k_weight{}, k_bias{}, v_weight{}, v_bias{};
  T input_weight{}, input_bias{}, forget_weight{}, forget_bias{};
  T norm_weight{}, norm_bias{};  // w in 1 + w
  T skip{};
};
using MlstmMixerParameters = MlstmMixerParametersOf<const float*>;
using MlstmMixerGradients = MlstmMixerParametersOf<float*>;
constexpr size_t kMixerParameters = sizeof(MlstmMixerParametersOf<char>);  // the number of parameters

// The axes of a parameter.
struct ParameterShape {
  template <class... Axes>
  explicit ParameterShape(Axes... axes) : sizes{static_cast<int64_t>(axes)...}, rank(sizeof...(axes)) {}
  int64_t numbers() const {
    int64_t product = 1;
    for (size_t i = 0; i < rank; ++i) product *= sizes[i];
    return product;
  }
  std::array<int64_t, 4> sizes;
  size_t rank;
};

// The table of the parameters: calls visit(name, required, shape, that field of each of `p`) for each. Those
// not required may be missing and count as zeros.
template <class Visit, class... Parameters>
void visit_mixer_parameters(const MlstmMixerShape& s, Visit&& visit, Parameters&... p) {
  using Shape = ParameterShape;
  constexpr bool kRequired = true, kOptional = false;
  const int64_t C = s.channels, H = s.heads, k = s.kernel;
  visit("conv_weight", kRequired, s.causal ? Shape(C, 1, k) : Shape(C, 1, k, k), p.conv_weight...);
  visit("conv_bias", kOptional, Shape(C), p.conv_bias...);
  visit("q_weight", kRequired, Shape(C / 4, 4, 4), p.q_weight...);
  visit("q_bias", kOptional, Shape(C), p.q_bias...);
  visit("k_weight", kRequired, Shape(C / 4, 4, 4), p.k_weight...);
  visit("k_bias", kOptional, Shape(C), p.k_bias...);
  visit("v_weight", kRequired, Shape(C / 4, 4, 4), p.v_weight...);
  visit("v_bias", kOptional, Shape(C), p.v_bias...);
  visit("input_weight", kRequired, Shape(H, 3 * C), p.input_weight...);
  visit("input_bias", kOptional, Shape(H), p.input_bias...);
  visit("forget_weight", kRequired, Shape(H, 3 * C), p.forget_weight...);
  visit("forget_bias", kOptional, Shape(H), p.forget_bias...);
  visit("norm_weight", kOptional, Shape(C), p.norm_weight...);
  visit("norm_bias", kOptional, Shape(C), p.norm_bias...);
  visit("skip", kRequired, Shape(C), p.skip...);
}

// All three or none. h (B,T,C); normaliser and row_sign (B,H,T), as in mlstm.h.
struct MlstmMixerSaved {
  float *h = nullptr, *normaliser = nullptr, *row_sign = nullptr;
};

struct MlstmMixerForward {
  MlstmMixerShape shape;
  TokenRows u;
  MlstmMixerParameters parameters;
  TokenRowsOut y;  // same element type as u
  MlstmMixerSaved saved;
};
struct MlstmMixerBackward {
  MlstmMixerShape shape;
  TokenRows u, dy;
  MlstmMixerParameters parameters;
  MlstmMixerSaved saved;
  TokenRowsOut du;                // same element type as u and dy
  MlstmMixerGradients gradients;  // overwritten; null ones are skipped
};

void mlstm_mixer_forward(const MlstmMixerForward& call);
void mlstm_mixer_backward(const MlstmMixerBackward& call);

}  // namespace tessera::kernels
