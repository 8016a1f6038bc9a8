// Layout of one head's working memory: counted for mlstm_scratch_bytes, handed out to the kernels. C headers
// only; everything is static, so each file has its own copy.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/memory.h"
#include "kernels/mlstm/mlstm.h"

namespace tessera::kernels {

// Tokens start … start+length-1 of a walk, and the factors that connect it to the state:
//   C_next = keep * C + state_out * sum_s column_s k_s v_s^T,
//   rows read state_in * C in addition to the chunk's own columns.
struct MlstmChunk {
  int64_t start, length;
  float keep, state_in, state_out;
};

// Per token of the walk; L is the chunk, Kp and Vp are K and V rounded up to 16.
struct MlstmGateScratch {
  float *igate, *fgate, *log_f;  // (T)
  double *column_log, *row_log;  // (T) log i_s - F_s, and its running maximum M_t
  float* column;                 // (T) exp(column_log - R)
  float* row;                    // (T) exp(R - row_log) / sqrt(K)
  double* m;                     // (T) the stabiliser m_t
  float* floor;                  // (T) exp(-m_t)
  int32_t* largest;              // (T) the token with M_t, -1 for the initial state
};

struct MlstmForwardScratch {
  MlstmGateScratch gates;
  float *keys, *queries, *values;  // (L,Kp), (L,Kp), (L,Vp) copies if the input cannot be read in place
  float* keys_t;                   // (K,Lp) transposed and scaled by column
  float* scores;                   // (L,Lp), one block of rows used
  float *row_sum, *row_scale;      // (Lp)
  float *normaliser, *row_sign;    // (Lp)
  float *c, *n;                    // (K,Vp), (Kp)
  float* h;                        // (L,Vp) if h is not computed in place
  // For words of two bfloat16:
  float* keys_rows;    // (K + 1,Lp/2) transposed: a channel's tokens are contiguous
  float* state_words;  // ((K + 1)/2,Vp)
};

struct MlstmBackwardScratch {
  MlstmGateScratch gates;
  MlstmChunk* chunks;              // (T) at most
  double* dcolumn;                 // (T) d loss / d column_log
  double* dlargest;                // (T) d loss / d m_t of the rows with their maximum at the token
  float* drow;                     // (T) d loss / d row_log
  float *keys, *queries, *values;  // as above
  float *keys_t, *values_t;        // (K,Lp), (V,Lp) transposed and scaled by column
  float *h, *dh, *u;               // (L,Vp)
  float* u_sum;                    // (Lp) d_t
  float *dh_h, *row_scale;         // (Lp) dh_t . h_t, and the factor from dh to u
  float *normaliser, *row_sign;    // (Lp) in walking order
  float* inverse_column;           // (Lp) 1 / column
  float* pair_column;              // (Lp) sums over the chunk's own pairs
  float *scores, *dscores;         // (L,Lp)
  float *dq, *dk, *dv;             // (L,Kp), (L,Kp), (L,Vp) if the output is not whole vectors of floats
  float *dc, *dc_t, *dn;           // (K,Vp), (V,Kp), (Kp)
  // For words of two bfloat16: rows of such numbers, transposed words of neighbours, words of two rows.
  float *query_rows, *key_rows, *value_rows, *u_rows;  // (L,Kp/2), (Lp,Kp/2), (Lp,Vp/2), (L,Vp/2)
  float *key_words, *value_words;                      // (Kp/2,Lp), (Vp/2,Lp)
  float *query_pairs, *key_pairs, *u_pairs;            // ((L+1)/2,Kp), ((L+1)/2,Kp), ((L+1)/2,Vp)
  float *score_pairs, *dscore_pairs;                   // ((L+1)/2,Lp)
  float *states, *states_n;  // (kept, V*Kp), (kept, Kp): states before chunks, values by keys
};

// Returns the number of states that backward keeps: usually one per chunk, and at least twice the root of T.
// Then two levels are enough, even if the gates end a chunk after every token.
[[maybe_unused]] static int64_t mlstm_kept_states(const MlstmShape& s) {
  int64_t root = 1;
  while (root * root < s.tokens) ++root;
  const int64_t chunks = (s.tokens + s.chunk - 1) / s.chunk;
  return chunks + 1 > 2 * root + 2 ? chunks + 1 : 2 * root + 2;
}

[[maybe_unused]] static MlstmGateScratch lay_out_gates(Arena& arena, int64_t tokens) {
  MlstmGateScratch g;
  const int64_t T = round_up16(tokens) + 16;  // whole vectors are read from any token on
  g.igate = take<float>(arena, T);
  g.fgate = take<float>(arena, T);
  g.log_f = take<float>(arena, T);
  g.column_log = take<double>(arena, T);
  g.row_log = take<double>(arena, T);
  g.column = take<float>(arena, T);
  g.row = take<float>(arena, T);
  g.m = take<double>(arena, T);
  g.floor = take<float>(arena, T);
  g.largest = take<int32_t>(arena, T);
  return g;
}

[[maybe_unused]] static MlstmForwardScratch lay_out_forward(Arena& arena, const MlstmShape& s) {
  MlstmForwardScratch f;
  const int64_t K = s.key_dim, L = s.chunk, Lp = round_up16(L), Kp = round_up16(K),
                Vp = round_up16(s.value_dim);
  f.gates = lay_out_gates(arena, s.tokens);
  f.keys = take<float>(arena, Lp * Kp);  // words are transposed a vector of rows at a time
  f.queries = take<float>(arena, L * Kp);
  f.values = take<float>(arena, L * Vp);
  f.keys_t = take<float>(arena, K * Lp);
  f.scores = take<float>(arena, L * Lp);
  f.row_sum = take<float>(arena, Lp);
  f.row_scale = take<float>(arena, Lp);
  f.normaliser = take<float>(arena, Lp);
  f.row_sign = take<float>(arena, Lp);
  f.c = take<float>(arena, K * Vp);
  f.n = take<float>(arena, Kp);
  f.h = take<float>(arena, L * Vp);
  f.keys_rows = take<float>(arena, (K + 1) * Lp / 2);
  f.state_words = take<float>(arena, (K + 1) / 2 * Vp);
  return f;
}

[[maybe_unused]] static MlstmBackwardScratch lay_out_backward(Arena& arena, const MlstmShape& s) {
  MlstmBackwardScratch b;
  const int64_t K = s.key_dim, V = s.value_dim, L = s.chunk;
  const int64_t Lp = round_up16(L), Kp = round_up16(K), Vp = round_up16(V), kept = mlstm_kept_states(s);
  b.gates = lay_out_gates(arena, s.tokens);
  b.chunks = take<MlstmChunk>(arena, s.tokens);
  b.dcolumn = take<double>(arena, s.tokens);
  b.dlargest = take<double>(arena, s.tokens);
  b.drow = take<float>(arena, round_up16(s.tokens) + 16);
  b.keys = take<float>(arena, L * Kp);
  b.queries = take<float>(arena, L * Kp);
  b.values = take<float>(arena, L * Vp);
  b.keys_t = take<float>(arena, K * Lp);
  b.values_t = take<float>(arena, V * Lp);
  b.h = take<float>(arena, L * Vp);
  b.dh = take<float>(arena, L * Vp);
  b.u = take<float>(arena, L * Vp);
  b.u_sum = take<float>(arena, Lp);
  b.dh_h = take<float>(arena, Lp);
  b.row_scale = take<float>(arena, Lp);
  b.normaliser = take<float>(arena, Lp);
  b.row_sign = take<float>(arena, Lp);
  b.inverse_column = take<float>(arena, Lp);
  b.pair_column = take<float>(arena, Lp);
  b.scores = take<float>(arena, L * Lp);
  b.dscores = take<float>(arena, L * Lp);
  b.dq = take<float>(arena, L * Kp);
  b.dk = take<float>(arena, L * Kp);
  b.dv = take<float>(arena, L * Vp);
  b.dc = take<float>(arena, K * Vp);
  b.dc_t = take<float>(arena, V * Kp);
  b.dn = take<float>(arena, Kp);
  const int64_t Lw = (L + 1) / 2;
  b.query_rows = take<float>(arena, L * Kp / 2);
  b.key_rows = take<float>(arena, Lp * Kp / 2);
  b.value_rows = take<float>(arena, Lp * Vp / 2);
  b.u_rows = take<float>(arena, L * Vp / 2);
  b.key_words = take<float>(arena, Kp / 2 * Lp);
  b.value_words = take<float>(arena, Vp / 2 * Lp);
  b.query_pairs = take<float>(arena, Lw * Kp);
  b.key_pairs = take<float>(arena, Lw * Kp);
  b.u_pairs = take<float>(arena, Lw * Vp);
  b.score_pairs = take<float>(arena, Lw * Lp);
  b.dscore_pairs = take<float>(arena, Lw * Lp);
  b.states = take<float>(arena, kept * V * Kp);
  b.states_n = take<float>(arena, kept * Kp);
  return b;
}

}  // namespace tessera::kernels
