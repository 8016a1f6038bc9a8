// Softmax attention on the CPU, forward and backward, without a matrix of all scores (Milakov & Gimelshein
// 2018; FlashAttention, Dao 2022 and 2023): keys are taken block by block, the running maximum and sum of
// each query correct what was added before. Memory beside the tensors is linear in the tokens.
//
//   s_ij = scale (R_i q_i) . (R_j k_j) + bias_ij       for the keys j that the mask lets query i see
//   p_ij = exp(s_ij - lse_i),  lse_i = log sum_j exp(s_ij)
//   o_i  = sum_j keep_ij p_ij v_j                      keep_ij = 1, mask.future_weight for keys behind i
//   ds_ij = p_ij (keep_ij do_i . v_j - do_i . o_i)     the gradient, dbias; dq, dk and dv follow from it
//
// R rotates adjacent pairs of channels by the token's angles (RoPE, Su et al. 2021) while a row is read. A
// query that sees no key gives zeros. Arithmetic is in float whatever the tensors are stored in, but for
// attention_fixed_point, attention_byte_scores and attention_bf16_pairs.
//
// Shape letters: B batch, H heads, Q queries, K keys, D channels of a head. Cost: 4 QKD multiply-adds a head
// forward with backward 14 QKD, less what the mask hides.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels {

struct AttentionShape {
  int64_t batch, heads, queries, keys, dim;
  float scale;             // of the products q . k, above 0
  int64_t query_rows = 0;  // queries that one unit of work takes; 0 chooses
  int64_t key_block = 0;   // keys that are packed at a time; 0 chooses
};

// Which keys a query sees. Query i stands at position first_query + i, key j at position j.
struct AttentionMask {
  bool causal = false;      // keys up to the query's own position
  int64_t window = 0;       // keys less than this far away; 0 = any
  int64_t first_query = 0;  // keys in front of the first query: the length of a key-value cache
  float future_weight = 1;  // of keys behind the query, after the softmax: iLLaMA has 0, or a soft share
};

// Cosines and sines of the angles of a token's pairs (2m, 2m+1), m < pairs <= D/2; channels behind them stay.
// Strides count floats, pairs are contiguous; head = 0 where all heads share a table. Null data: no rotation.
struct Rotary {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t head = 0, token = 0, pairs = 0;
};

// Added to the scores: keys are contiguous, a stride of 0 broadcasts. Sample b takes entry b modulo `batches`
// (the windows of a picture, say). -infinity hides a key. Null data: none.
struct AttentionBias {
  const float* data = nullptr;
  int64_t batches = 1, batch = 0, head = 0, query = 0;
};

// q, out (B,H,Q,D), k, v (B,H,K,D), of any element type each.
struct AttentionForward {
  AttentionShape shape;
  AttentionMask mask;
  HeadRows q, k, v;
  HeadRowsOut out;  // may not overlap an input
  Rotary q_rotary, k_rotary;
  AttentionBias bias;
  float* lse = nullptr;  // (B,H,Q) contiguous: lse_i / log 2, kept for backward, or null
  // Products on whole numbers, where the processor is faster at them: both on 16 bits, which puts the result
  // off by about as much as its rounding to bfloat16, or q . k on 8, a scale for each token, which puts q . k
  // off by about |q| |k| / (120 sqrt(D)), more where one channel stands out.
  bool fixed_point = false;
};

// Contents of the outputs before are overwritten.
struct AttentionBackward {
  AttentionShape shape;
  AttentionMask mask;
  HeadRows q, k, v, out;
  const float* lse;
  HeadRows dout;
  HeadRowsOut dq, dk, dv;
  Rotary q_rotary, k_rotary;
  AttentionBias bias;
  // (batches, H or 1 where bias.head = 0, Q, K) contiguous: summed over what the bias is broadcast over. Or
  // null.
  float* dbias = nullptr;
};

// Checks the shape, then runs the implementation in use over units of work on core's threads.
void attention_forward(const AttentionForward& call);
void attention_backward(const AttentionBackward& call);

using AttentionForwardFunction = void (*)(const AttentionForward&, int64_t begin, int64_t end, void* scratch);

// One implementation; the shape must be planned, `scratch` holds attention_scratch_bytes() on a 64-byte
// boundary. Forward handles units [begin, end): the pieces of query_rows queries of each of the B*H heads in
// turn. Backward handles heads [begin, end) and adds to `dbias`.
struct AttentionFunctions {
  AttentionForwardFunction forward;
  void (*backward)(const AttentionBackward&, int64_t begin, int64_t end, float* dbias, void* scratch);
};

Table<AttentionFunctions> attention_table();
// `fixed_point` takes this: where pairs of bfloat16 are the faster ones, for tensors of bfloat16, scores from
// bytes (attention_bytes.cpp; tiles of bfloat16, AMX, are faster still), else whole numbers of 16 bits
// (attention_fixed.cpp). Null where this machine, or the instruction set in use, has no such products.
AttentionForwardFunction attention_byte_scores();
AttentionForwardFunction attention_fixed_point();
// For tensors of bfloat16 where its products in pairs are the faster ones (attention_pairs.cpp): rotated
// queries and keys, the weights and the gradients of the scores are rounded to bfloat16 too. Null as above.
const AttentionFunctions* attention_bf16_pairs();
Table<AttentionFunctions> attention_pairs_table();
// The shape with its blocks chosen, for so many threads.
AttentionShape attention_plan(const AttentionShape& shape, int threads);
int64_t attention_units(const AttentionShape& planned);  // of forward
// Bytes for one thread, whatever the implementation.
size_t attention_scratch_bytes(const AttentionShape& planned, bool backward);

}  // namespace tessera::kernels
