// The parts of the Vision-LSTM mixer around the mLSTM cell; mlstm_mixer.h combines them.
//
// All process tensors (batch, token, channel) on a range [begin, end) of the B*T tokens. So the caller owns
// the threads and may process one sample at a time while it is in the cache. Gradients of parameters are
// added to the caller's buffers, which belong to one thread. Shape letters: B batch, T tokens, C channels, H
// heads, G gates (2 H: the H input gates, then the H forget gates).
//
// Arithmetic is in float. StoredRows are floats or bfloat16, the same for all tensors of a call, except that
// q, k and v share their own type. With bfloat16, a SiLU has a relative error of 7e-5, its slope of 2e-4 plus
// 3e-5. `pairs` needs bfloat16 tensors: if the instruction set supports it, pairs of bfloat16 are multiplied,
// with weights and the gates' gradients rounded to it. This is faster if bf16_pairs_are_faster.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels {

// Rows of floats or bfloat16 for the kernels, of doubles for the double definitions.
template <class Real>
struct StoredRowsFor {
  using In = TokenView<const Real*>;
  using Out = TokenView<Real*>;
};
template <>
struct StoredRowsFor<float> {
  using In = TokenRows;
  using Out = TokenRowsOut;
};
template <class Real>
using StoredRows = typename StoredRowsFor<Real>::In;
template <class Real>
using StoredRowsOut = typename StoredRowsFor<Real>::Out;

// ---- Depthwise convolution over the tokens' grid, rows x columns = T
//
// pre[y,x] = bias + sum_ij tap_ij x[y + i - pad_top, x + j - pad_left], zeros outside;   out = silu(pre). A
// sequence is a grid of one row. `reverse` rotates the kernel by 180 degrees, as if the tokens were flipped
// before and after; causal then looks ahead.
struct DepthwiseShape {
  int64_t batch, rows, columns, channels;
  int64_t kernel_rows, kernel_columns, pad_top, pad_left;
  bool reverse = false;
};
template <class Real>
struct DepthwiseForwardOf {
  DepthwiseShape shape;
  StoredRows<Real> x;
  const Real* taps;         // (kernel_rows * kernel_columns, C)
  const Real* bias;         // (C) or null
  TokenView<Real*> pre;     // before the SiLU; optional
  StoredRowsOut<Real> out;  // optional
  int64_t x_first = 0;      // first token of x: a piece of a long sequence needs no buffers for the rest
  int64_t out_first = 0;    // first token of pre and out
};
template <class Real>
struct DepthwiseBackwardOf {
  DepthwiseShape shape;
  StoredRows<Real> x;
  TokenView<const Real*> dpre;  // for all tokens, from gates_backward
  const Real* taps;
  TokenView<const Real*> add;  // added to dx if given
  StoredRowsOut<Real> dx;      // for tokens begin … end-1
  Real *dtaps, *dbias;         // += sums over dpre of tokens begin … end-1; both or neither
};

// ---- Block-diagonal projections
//
//   q = Wq a + bq,   k = Wk a + bk,   v = Wv x + bv   in blocks of 4 channels
//
// `lanes` of a projection are the blocks' weights by column: lanes[d * lane_row + 4 b + o] = W[b][o][d]. The
// channels may be part of a wider tensor; then all pointers point at the first of them.
template <class Real>
struct HeadwiseWeightsOf {
  const Real *q_lanes, *k_lanes, *v_lanes;  // (4, C), rows at a distance of lane_row
  int64_t lane_row;
  const Real *q_bias, *k_bias, *v_bias;  // (C) or null
};
template <class Real>
struct HeadwiseGradientsOf {
  Real *q_lanes, *k_lanes, *v_lanes;  // like the weights; all or none
  int64_t lane_row;
  Real *q_bias, *k_bias, *v_bias;  // all or none
};
template <class Real>
struct HeadwiseForwardOf {
  int64_t tokens, channels;
  StoredRows<Real> a, x;
  HeadwiseWeightsOf<Real> weights;
  StoredRowsOut<Real> q, k, v;  // bfloat16 only if a and x are too
  bool pairs = false;
};
template <class Real>
struct HeadwiseBackwardOf {
  int64_t tokens, channels;
  StoredRows<Real> a, x;  // not read if no sums are given
  TokenView<const Real*> dq, dk, dv;
  HeadwiseWeightsOf<Real> weights;
  TokenView<Real*> da;             // adds to it; it already has the skip's part
  TokenView<Real*> dx;             // =; both or neither
  HeadwiseGradientsOf<Real> sums;  // +=
};

// ---- Gates, as linear maps of a and x
//
//   gate = W [a; x] + b
//
// The layer's gates are linear in [q; k; v], and these are linear in a and x. The caller combines the two
// maps (fold_gates), which saves a third of the products. Weights are rows of 2 C; G' is G padded with zeros
// to a multiple of 8.
template <class Real>
struct GatesForwardOf {
  int64_t tokens, channels, gates;
  StoredRows<Real> a, x;
  const Real *weight, *bias;              // (G', 2 C), (G')
  TokenView<Real*> gate;                  // (B,T,G')
  const uint16_t* weight_half = nullptr;  // in addition to weight, for pairs
};
// Adds the gates' part of the gradients of a and x, and applies the slope of the SiLU that gave a.
template <class Real>
struct GatesBackwardOf {
  int64_t tokens, channels, gates;
  StoredRows<Real> a, x;
  TokenView<const Real*> pre;
  const Real* weight;
  TokenView<const Real*> dgate;           // (B,T,G'), zeros from G on
  TokenView<Real*> da;                    // = (da + Wa^T dgate) silu'(pre)
  TokenView<Real*> dx;                    // += Wx^T dgate
  Real *dweight, *dbias;                  // (G', 2 C), (G') +=
  const uint16_t* weight_half = nullptr;  // in addition to weight, for pairs
};

// ---- Norm per head, skip and output gate
//
//   y = (norm(h) (1 + w) + b + skip * a) * silu(z),   norm over the C/H channels of a head, biased variance
template <class Real>
struct HeadNormWeightsOf {
  const Real *scale, *bias, *skip;  // (C): w, b (or null), skip
};
template <class Real>
struct HeadNormForwardOf {
  int64_t tokens, channels, heads;
  Real eps;
  TokenView<const Real*> h;
  StoredRows<Real> a, z;
  HeadNormWeightsOf<Real> weights;
  StoredRowsOut<Real> y;
};
template <class Real>
struct HeadNormBackwardOf {
  int64_t tokens, channels, heads;
  Real eps;
  TokenView<const Real*> h;
  StoredRows<Real> a, z, dy;
  HeadNormWeightsOf<Real> weights;
  TokenView<Real*> dh, da;       // =
  StoredRowsOut<Real> dz;        // =
  Real *dscale, *dbias, *dskip;  // (C) +=
};

using DepthwiseForward = DepthwiseForwardOf<float>;
using DepthwiseBackward = DepthwiseBackwardOf<float>;
using HeadwiseWeights = HeadwiseWeightsOf<float>;
using HeadwiseGradients = HeadwiseGradientsOf<float>;
using HeadwiseForward = HeadwiseForwardOf<float>;
using HeadwiseBackward = HeadwiseBackwardOf<float>;
using GatesForward = GatesForwardOf<float>;
using GatesBackward = GatesBackwardOf<float>;
using HeadNormWeights = HeadNormWeightsOf<float>;
using HeadNormForward = HeadNormForwardOf<float>;
using HeadNormBackward = HeadNormBackwardOf<float>;

struct MixerFunctions {
  void (*depthwise_forward)(const DepthwiseForward&, int64_t begin, int64_t end);
  void (*depthwise_backward)(const DepthwiseBackward&, int64_t begin, int64_t end);
  void (*headwise_forward)(const HeadwiseForward&, int64_t begin, int64_t end);
  void (*headwise_backward)(const HeadwiseBackward&, int64_t begin, int64_t end);
  void (*gates_forward)(const GatesForward&, int64_t begin, int64_t end);
  void (*gates_backward)(const GatesBackward&, int64_t begin, int64_t end);
  void (*head_norm_forward)(const HeadNormForward&, int64_t begin, int64_t end);
  void (*head_norm_backward)(const HeadNormBackward&, int64_t begin, int64_t end);
  // Converts to bfloat16, rounded to nearest even.
  void (*narrow)(const float* from, uint16_t* to, int64_t count);
};
Table<MixerFunctions> mixer_table();

// The definitions of the mixer's parts: plain loops, double sums over numbers of type Real. In float they are
// the last entries of the tables of implementations; in double, finite differences check their gradients.
template <class Real>
void depthwise_forward_ref(const DepthwiseForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void depthwise_backward_ref(const DepthwiseBackwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void headwise_forward_ref(const HeadwiseForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void headwise_backward_ref(const HeadwiseBackwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void gates_forward_ref(const GatesForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void gates_backward_ref(const GatesBackwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void head_norm_forward_ref(const HeadNormForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void head_norm_backward_ref(const HeadNormBackwardOf<Real>& call, int64_t begin, int64_t end);

}  // namespace tessera::kernels
