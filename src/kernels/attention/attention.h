// Softmax attention on the CPU, forward and backward, without a matrix of all scores (Milakov & Gimelshein
// 2018; FlashAttention, Dao 2022 and 2023). Keys are read block by block; a running maximum and sum per query
// correct earlier results. Extra memory is linear in the tokens.
//
//   s_ij = scale (R_i q_i) . (R_j k_j) + bias_ij       for the keys j that the mask lets query i see
//   p_ij = exp(s_ij - lse_i),  lse_i = log sum_j exp(s_ij)
//   o_i  = sum_j keep_ij p_ij v_j                      keep_ij = 1, mask.future_weight for keys after i
//   ds_ij = p_ij (keep_ij do_i . v_j - do_i . o_i)     the gradient, dbias; dq, dk and dv follow from it
//
// R rotates adjacent pairs of channels by the token's angles (RoPE, Su et al. 2021) while a row is read. A
// query that sees no key gives zeros. Arithmetic is in float for every storage type, except in
// attention_fixed_point, attention_byte_scores and attention_bf16_pairs.
//
// Shape letters: B batch, H heads, Q queries, K keys, D channels per head. Cost: 4 QKD multiply-adds per head
// forward, 14 QKD with backward, less the masked part.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels {

struct AttentionShape {
  int64_t batch, heads, queries, keys, dim;
  float scale;             // factor of the products q . k, above 0
  int64_t query_rows = 0;  // queries per unit of work; 0: chosen automatically
  int64_t key_block = 0;   // keys packed at a time; 0: chosen automatically
};

// The keys that a query sees. Query i has position first_query + i, key j position j.
struct AttentionMask {
  bool causal = false;      // keys up to the query's own position
  int64_t window = 0;       // keys closer than this; 0 = any distance
  int64_t first_query = 0;  // keys before the first query: the length of a key-value cache
  float future_weight = 1;  // factor after the softmax for keys after the query: 0 in iLLaMA, or a soft share
};

// Cosines and sines of the angles of a token's pairs (2m, 2m+1), m < pairs <= D/2; others are unchanged.
// Strides count floats, pairs are contiguous; head = 0 if all heads share a table. Null data: no rotation.
struct Rotary {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t head = 0, token = 0, pairs = 0;
};

// Added to the scores: keys are contiguous, a stride of 0 broadcasts. Sample b uses entry b modulo `batches`,
// for example if samples are windows of images. -infinity hides a key. Null data: none.
struct AttentionBias {
  const float* data = nullptr;
  int64_t batches = 1, batch = 0, head = 0, query = 0;
};

// q, out (B,H,Q,D), k, v (B,H,K,D), each of any element type.
struct AttentionForward {
  AttentionShape shape;
  AttentionMask mask;
  HeadRows q, k, v;
  HeadRowsOut out;  // may not overlap an input
  Rotary q_rotary, k_rotary;
  AttentionBias bias;
  float* lse = nullptr;  // (B,H,Q) contiguous: lse_i / log 2, kept for backward, or null
  // Allows integer products if the processor is faster at them. With 16 bits for both products, the error is
  // about that of rounding the result to bfloat16. With 8 bits and a scale per token for q . k, its error is
  // about |q| |k| / (120 sqrt(D)), more if one channel dominates.
  bool fixed_point = false;
};

// Overwrites the outputs.
struct AttentionBackward {
  AttentionShape shape;
  AttentionMask mask;
  HeadRows q, k, v, out;
  const float* lse;
  HeadRows dout;
  HeadRowsOut dq, dk, dv;
  Rotary q_rotary, k_rotary;
  AttentionBias bias;
  // (batches, H or 1 if bias.head = 0, Q, K) contiguous: summed over the axes that the bias broadcasts. Or
  // null.
  float* dbias = nullptr;
};

// Checks the shape, then runs the implementation in use over units of work on core's threads.
void attention_forward(const AttentionForward& call);
void attention_backward(const AttentionBackward& call);

using AttentionForwardFunction = void (*)(const AttentionForward&, int64_t begin, int64_t end, void* scratch);

// One implementation. The shape must be planned; `scratch` holds attention_scratch_bytes() on a 64-byte
// boundary. Forward handles units [begin, end), each of query_rows queries, for one of the B*H heads after
// the other. Backward handles heads [begin, end) and adds to `dbias`.
struct AttentionFunctions {
  AttentionForwardFunction forward;
  void (*backward)(const AttentionBackward&, int64_t begin, int64_t end, float* dbias, void* scratch);
};

Table<AttentionFunctions> attention_table();
// Return the implementations for `fixed_point`. For bfloat16 tensors on processors with fast bfloat16 pairs,
// scores use bytes (attention_bytes.cpp), unless AMX is even faster. Otherwise 16-bit integers
// (attention_fixed.cpp). Null if the machine, or the instruction set in use, lacks such products.
AttentionForwardFunction attention_byte_scores();
AttentionForwardFunction attention_fixed_point();
// Those for bfloat16 tensors, if products of bfloat16 pairs are faster (attention_pairs.cpp). Rotated queries
// and keys, weights and gradients of scores are rounded to bfloat16 too. Null as above.
const AttentionFunctions* attention_bf16_pairs();
Table<AttentionFunctions> attention_pairs_table();
// Returns the shape with block sizes chosen for `threads` threads.
AttentionShape attention_plan(const AttentionShape& shape, int threads);
int64_t attention_units(const AttentionShape& planned);  // units of forward
// Returns the scratch bytes per thread, enough for every implementation.
size_t attention_scratch_bytes(const AttentionShape& planned, bool backward);

}  // namespace tessera::kernels
