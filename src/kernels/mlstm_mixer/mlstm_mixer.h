// What stands between the two large projections of a Vision-LSTM layer, as one operation, forward and
// backward:
//
//   x, z = halves of u                          u (B,T,2C)
//   a = silu(conv(x))                           depthwise: over the grid, or causal over the sequence
//   q, k = blocks of a, v = blocks of x         block-diagonal, 4x4 blocks
//   i, f = gates linear in [q; k; v]            a number a head
//   h = mlstm(q, k, v, i, f)                    mlstm/mlstm.h
//   y = (norm(h) (1 + w) + b + skip a) silu(z)  norm a head; y (B,T,C)
//
// With `reverse` all of it runs as if the tokens were flipped before and after; no memory is reordered.
//
// A sample goes through all steps while it is in the cache, from q, k and v on one head after the other, and
// in forward a long one piece by piece with the cell's state between them, so that time and working memory a
// token do not grow with the sequence. Forward reads u and writes y (and h where it is kept); backward reads
// u and dy, computes the steps again (but for the cell, if h was kept) and writes du. Threads share the
// samples; with fewer samples than threads they share the tokens and heads of each. Arithmetic is in float
// whatever u is stored in, but for the cell's products (mlstm_for) and, where u is bfloat16 and products of
// its pairs are the faster ones, those of the projections and the gates; a is then kept in bfloat16 as well.
//
// How to wrap it: keep u, h, normaliser and row_sign from forward (h of B*T*C floats; leave all three null
// to save their memory and compute the cell twice), and hand them to backward together with dy. Gradients of
// parameters come in the parameters' layouts, in float; those that are null are left out. The result does not
// depend on the machine's load, but the parameters' gradients depend on the number of threads by rounding.
#pragma once

#include "kernels/mlstm_mixer/parts.h"
#include "kernels/types.h"

namespace tessera::kernels {

struct MlstmMixerShape {
  int64_t batch, rows, columns;  // T = rows * columns; rows = 1 for a sequence
  int64_t channels, heads;       // C, a multiple of 4 and of the heads
  int64_t kernel = 3;  // side of the convolution: kernel x kernel on the grid, odd, or 1 x kernel, causal
  bool causal = false;
  bool reverse = false;
  float norm_eps = 1e-5f, cell_eps = 1e-6f;
};

// A tensor (batch, token, channel); strides in elements, channels contiguous.
template <class Pointer>
struct StoredRowsOf {
  Pointer data = nullptr;
  Element element = Element::f32;
  int64_t batch = 0, token = 0;
};
using StoredRows = StoredRowsOf<const void*>;
using StoredRowsOut = StoredRowsOf<void*>;

// Contiguous floats in the published layouts.
template <class Pointer>
struct MlstmMixerParametersOf {
  Pointer conv_weight, conv_bias;  // (C,1,k,k) or (C,1,k); bias (C) or null
  Pointer q_weight, q_bias;        // (C/4,4,4); bias (C) or null
  Pointer k_weight, k_bias, v_weight, v_bias;
  Pointer input_weight, input_bias;    // (H,3C), (H)
  Pointer forget_weight, forget_bias;  // (H,3C), (H)
  Pointer norm_weight, norm_bias;      // (C): w of 1 + w; bias or null
  Pointer skip;                        // (C)
};
using MlstmMixerParameters = MlstmMixerParametersOf<const float*>;
using MlstmMixerGradients = MlstmMixerParametersOf<float*>;

// All three or none. h (B,T,C); normaliser and row_sign (B,H,T), as mlstm.h has them.
struct MlstmMixerSaved {
  float *h = nullptr, *normaliser = nullptr, *row_sign = nullptr;
};

struct MlstmMixerForward {
  MlstmMixerShape shape;
  StoredRows u;
  MlstmMixerParameters parameters;
  StoredRowsOut y;  // of u's element type
  MlstmMixerSaved saved;
};
struct MlstmMixerBackward {
  MlstmMixerShape shape;
  StoredRows u, dy;
  MlstmMixerParameters parameters;
  MlstmMixerSaved saved;
  StoredRowsOut du;               // of u's element type, as dy is
  MlstmMixerGradients gradients;  // overwritten; null where not wanted
};

void mlstm_mixer_forward(const MlstmMixerForward& call);
void mlstm_mixer_backward(const MlstmMixerBackward& call);

}  // namespace tessera::kernels
