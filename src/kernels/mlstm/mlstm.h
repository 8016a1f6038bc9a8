// The mLSTM cell on the CPU, forward and backward, in time and memory linear in the number of tokens.
//
// xLSTM (Beck et al. 2024) eq. 19-27 with the numerics of the published Vision-LSTM code. For one head, with
// log f = logsigmoid(fgate), log i = igate, F_t = log f_1 + … + log f_t:
//   log D_ts = F_t - F_s + log i_s   (s <= t),      m_t = max_s log D_ts     (the row's stabiliser)
//   P_ts     = exp(log D_ts - m_t) (q_t . k_s) / sqrt(K),                    r_t = sum_s P_ts
//   h_t      = sum_s P_ts v_s / (max(|r_t|, exp(-m_t)) + eps)
// The same as a recurrence, which carries tokens over chunk borders, streams and sequences:
//   m_t = max(log f_t + m_t-1, log i_t),   a = exp(log f_t + m_t-1 - m_t),   b = exp(log i_t - m_t)
//   C_t = a C_t-1 + b k_t v_t^T,           n_t = a n_t-1 + b k_t
//   r_t = q_t . n_t / sqrt(K),             h_t = q_t C_t / (sqrt(K) (max(|r_t|, exp(-m_t)) + eps))
//
// How it is computed. With a_s = log i_s - F_s and M_t = max_(s<=t) a_s the weight is exp(a_s - M_t): it
// splits into a factor of the column and one of the row about a common reference R, and so a chunk needs
// products only, no exponential a pair. A chunk ends early where the two factors would leave a safe range
// (strong gates), so any gates are exact; scans and exponents are in double, products in float (or of
// bfloat16 pairs, mlstm_for). Cost a token and head, forward: 2 K + 2 V multiply-adds for each of the
// chunk's earlier tokens (on average half a chunk), and 2 K V for the state between chunks.
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
  bool reverse = false;  // walk from the last token to the first (no memory is reordered)
  float eps = 1e-6f;     // added after the maximum, on the stabilised scale
  int64_t chunk = 0;     // most tokens in a chunk; 0 chooses
};

// The state between tokens, a (K,V) matrix a head, with keys not divided by sqrt(K), as published.
// Contiguous: c (B,H,K,V), n (B,H,K), m (B,H). All three or none are given.
template <class Pointer>
struct MlstmStateOf {
  Pointer c = nullptr, n = nullptr, m = nullptr;
};
using MlstmState = MlstmStateOf<const float*>;
using MlstmStateOut = MlstmStateOf<float*>;

// Forward. q, k (B,H,T,K), v, h (B,H,T,V); q, k and v of one element type, h of any.
struct MlstmForward {
  MlstmShape shape;
  HeadRows q, k, v;
  Gates igate, fgate;  // preactivations (B,H,T)
  HeadRowsOut h;       // may not overlap an input
  MlstmState initial;  // none: no token before the first, m_0 = -infinity. The published chunkwise and
                       // recurrent forms start with zeros and m_0 = 0 instead: give those to follow them
  MlstmStateOut last;  // state after the last token; may be `initial`, in place: tokens = 1 then is a
                       // step of streaming
  // Kept for backward, (B,H,T) contiguous in the order of memory, or null: max(|r|, exp(-m)) + eps, and the
  // sign of r where |r| was the greater, else 0.
  float* normaliser = nullptr;
  float* row_sign = nullptr;
};

// Backward: gradients of a loss with respect to every input. dq, dk, dv of one element type; contents before
// are overwritten.
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

// One implementation. A call handles items [begin, end) of the B*H heads; the caller owns the threads.
// `scratch` holds mlstm_scratch_bytes() on a 64-byte boundary; shape.chunk must have been chosen.
struct MlstmFunctions {
  void (*forward)(const MlstmForward&, int64_t begin, int64_t end, void* scratch);
  void (*backward)(const MlstmBackward&, int64_t begin, int64_t end, void* scratch);
};

Table<MlstmFunctions> mlstm_table();
// With the factors of the products rounded to bfloat16 (mlstm_pairs.cpp, mlstm_backward_pairs.cpp); null
// where this machine, or the instruction set in use, has no products of such pairs. Forward and backward
// belong together: the gates' gradients are small differences of large sums, and would be wrong by what two
// forms do not share.
const MlstmFunctions* mlstm_bf16_pairs();
Table<MlstmFunctions> mlstm_pairs_table();
// Returns what to take for q, k and v stored so: pairs where these are the faster ones, else the table's.
const MlstmFunctions& mlstm_for(Element element);
// The shape with its chunk chosen.
MlstmShape mlstm_plan(const MlstmShape& shape);
// Bytes for one thread, whatever the implementation.
size_t mlstm_scratch_bytes(const MlstmShape& planned, bool backward);

}  // namespace tessera::kernels
