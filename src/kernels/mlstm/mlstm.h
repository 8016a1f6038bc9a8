// The mLSTM cell on the CPU, forward and backward, in time and memory linear in the number of tokens.
//
// xLSTM (Beck et al. 2024) eq. 19-27 with the numerics of the published Vision-LSTM code. For one head, with
// log f = logsigmoid(fgate), log i = igate, F_t = log f_1 + … + log f_t:
//   log D_ts = F_t - F_s + log i_s   (s <= t),      m_t = max_s log D_ts     (the row's stabiliser)
//   P_ts     = exp(log D_ts - m_t) (q_t . k_s) / sqrt(K),                    r_t = sum_s P_ts
//   h_t      = sum_s P_ts v_s / (max(|r_t|, exp(-m_t)) + eps)
// The equivalent recurrence, which carries the state over chunk borders, streams and sequences:
//   m_t = max(log f_t + m_t-1, log i_t),   a = exp(log f_t + m_t-1 - m_t),   b = exp(log i_t - m_t)
//   C_t = a C_t-1 + b k_t v_t^T,           n_t = a n_t-1 + b k_t
//   r_t = q_t . n_t / sqrt(K),             h_t = q_t C_t / (sqrt(K) (max(|r_t|, exp(-m_t)) + eps))
//
// Method: with a_s = log i_s - F_s and M_t = max_(s<=t) a_s the weight is exp(a_s - M_t). It splits into a
// column factor and a row factor relative to a common reference R, so a chunk needs only products, not an
// exponential per pair. A chunk ends early if the two factors would leave a safe range (strong gates), so any
// gates are exact. Scans and exponents are in double, products in float (or of bfloat16 pairs, mlstm_for).
// Forward cost per token and head: 2 K + 2 V multiply-adds for each earlier token of the chunk (on average
// half a chunk), and 2 K V for the state between chunks.
//
// Shape letters: B batch, H heads, T tokens, K head dim of queries and keys, V head dim of values.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels {

struct MlstmShape {
  int64_t batch, heads, tokens, key_dim, value_dim;
  bool reverse = false;  // walks from the last token to the first; no memory is reordered
  float eps = 1e-6f;     // added after the maximum, on the stabilised scale
  int64_t chunk = 0;     // maximum tokens per chunk; 0: chosen automatically
};

// The state between tokens, a (K,V) matrix per head, with keys not divided by sqrt(K), as published.
// Contiguous: c (B,H,K,V), n (B,H,K), m (B,H). All three or none are given.
template <class Pointer>
struct MlstmStateOf {
  Pointer c = nullptr, n = nullptr, m = nullptr;
};
using MlstmState = MlstmStateOf<const float*>;
using MlstmStateOut = MlstmStateOf<float*>;

// Forward. q, k (B,H,T,K), v, h (B,H,T,V). q, k and v share one element type, h may have another.
struct MlstmForward {
  MlstmShape shape;
  HeadRows q, k, v;
  Gates igate, fgate;  // preactivations (B,H,T)
  HeadRowsOut h;       // may not overlap an input
  MlstmState initial;  // none: no token before the first, m_0 = -infinity. To match the published chunkwise
                       // and recurrent forms, pass zeros and m_0 = 0
  MlstmStateOut last;  // state after the last token; may be `initial`, in place: a streaming step if tokens =
                       // 1
  // Kept for backward, (B,H,T) contiguous in memory order, or null: max(|r|, exp(-m)) + eps, and the sign of
  // r if
  // r| is the greater, else 0.
  float* normaliser = nullptr;
  float* row_sign = nullptr;
};

// Backward: gradients of a loss with respect to every input. dq, dk, dv share one element type. Overwrites
// the outputs.
struct MlstmBackward {
  MlstmShape shape;
  HeadRows q, k, v;
  Gates igate, fgate;
  HeadRows h;  // the output of forward
  const float* normaliser;
  const float* row_sign;
  HeadRows dh;
  HeadRowsOut dq, dk, dv;
  GatesOut digate, dfgate;
  MlstmState initial;      // as in forward
  MlstmState dlast;        // gradient of forward's `last`, or none
  MlstmStateOut dinitial;  // gradient of `initial`, or none
};

// Checks the shape, then runs the implementation in use over all heads on core's threads.
void mlstm_forward(const MlstmForward& call);
void mlstm_backward(const MlstmBackward& call);

// One implementation. A call handles heads [begin, end) of the B*H heads; the caller owns the threads.
// `scratch` holds mlstm_scratch_bytes() on a 64-byte boundary; shape.chunk must be chosen.
struct MlstmFunctions {
  void (*forward)(const MlstmForward&, int64_t begin, int64_t end, void* scratch);
  void (*backward)(const MlstmBackward&, int64_t begin, int64_t end, void* scratch);
};

Table<MlstmFunctions> mlstm_table();
// With the factors of the products rounded to bfloat16 (mlstm_pairs.cpp, mlstm_backward_pairs.cpp). Null if
// this machine, or the instruction set in use, lacks products of such pairs. Do not mix with another form:
// the gates' gradients are small differences of large sums, and the roundings of forward and backward must
// match.
const MlstmFunctions* mlstm_bf16_pairs();
Table<MlstmFunctions> mlstm_pairs_table();
// Returns the functions for q, k and v of this type: pairs if these are faster, else the table's.
const MlstmFunctions& mlstm_for(Element element);
// Returns the shape with its chunk chosen.
MlstmShape mlstm_plan(const MlstmShape& shape);
// Returns the scratch bytes per thread, enough for every implementation.
size_t mlstm_scratch_bytes(const MlstmShape& planned, bool backward);

}  // namespace tessera::kernels
