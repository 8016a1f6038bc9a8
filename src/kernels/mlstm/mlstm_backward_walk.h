// The mLSTM's backward loop over heads and chunks, for any form of the products within a chunk. Per-ISA.
// Letters as in mlstm.h; everything below is relative to a chunk's reference R.
//
//   u_t   = dh_t row_t / N_t                      N_t the normaliser, row_t = exp(R - M_t) / sqrt(K)
//   d_t   = row_t row_sign_t dN_t,                dN_t = -(dh_t . h_t) / N_t
//   S_ts  = column_s (q_t . k_s),                 dS_ts = column_s (u_t . v_s + d_t)          (s <= t)
//   dq_t  = sum_s dS_ts k_s + state_in (C u_t + d_t n)
//   dk_s  = sum_t dS_ts q_t + state_out column_s (dC v_s + dn)
//   dv_s  = sum_t S_ts u_t  + state_out column_s dC^T k_s
//   dC    = keep dC + state_in sum_t q_t u_t^T,   dn = keep dn + state_in sum_t d_t q_t       (walking back)
// Within a chunk, the gates have G_ts = d loss / d log D_ts = S_ts dS_ts / column_s. Pairs with the state add
// q_t . dq_t to a row's sum and k_s . dk_s to a column's, for the parts of dq and dk through the state. The
// stabiliser's own part, eps dN_t, belongs to the row and to the token with its maximum. Then
//   digate_s = column sum,   d log f_u = sum_(t >= u in the chunk) (row sum - column sum) + (C . dC + n . dn)
// with the state after the chunk. All weights across a border pass through the state, so the rounding of
// these sums, which mostly cancel, does not accumulate over chunks.
#pragma once

#include "kernels/mlstm/mlstm_parts.h"

namespace tessera::kernels::TESSERA_ISA {

// A head in the backward pass, and its working memory.
struct HeadGradients {
  const MlstmBackward& call;
  MlstmBackwardScratch b;
  HeadWalk<const void*> q, k, v, h, dh;
  HeadWalk<void*> dq, dk, dv;
  const float *normaliser, *row_sign;  // in memory order
  int64_t item;
  bool has_dstate;    // true if b.dc and b.dn are set
  double dinitial_m;  // the stabiliser's part of d m_0
  // Sums over later tokens of row sum - column sum, and of the stabiliser's part in it.
  double rows_to_come, stabiliser_to_come;
};

// Returns the state before chunk `i` of a segment, values by keys.
[[maybe_unused]] static float* state_at(const HeadGradients& head, int64_t i) {
  return head.b.states + i * head.call.shape.value_dim * round_up16(head.call.shape.key_dim);
}
[[maybe_unused]] static float* state_n_at(const HeadGradients& head, int64_t i) {
  return head.b.states_n + i * round_up16(head.call.shape.key_dim);
}

[[maybe_unused]] static bool load_initial_state(const HeadGradients& head) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Kp = round_up16(K);
  const MlstmState& from = head.call.initial;
  if (!from.c) return false;
  transpose_scaled(from.c + head.item * K * V, V, K, V, nullptr, state_at(head, 0), Kp);
  copy_rows(from.n + head.item * K, K, 1, K, state_n_at(head, 0), Kp);
  return true;
}

// Computes state `to` from state `from` and the chunk between them.
[[maybe_unused]] static void advance_state(const HeadGradients& head, const MlstmChunk& chunk, bool has_state,
                                           int64_t from, int64_t to) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t K = s.key_dim, V = s.value_dim, L = chunk.length, Lp = round_up16(s.chunk),
                Kp = round_up16(K);
  const Matrix k = rows_as_floats(head.k, chunk.start, L, K, b.keys);
  const Matrix v = rows_as_floats(head.v, chunk.start, L, V, b.values);
  const float* column = b.gates.column + chunk.start;
  transpose_scaled(v.data, v.row, L, V, column, b.values_t, Lp);
  float *c = state_at(head, to), *n = state_n_at(head, to);
  if (has_state && from != to) {
    memcpy(c, state_at(head, from), sizeof(float) * V * Kp);
    memcpy(n, state_n_at(head, from), sizeof(float) * Kp);
  }
  Mix update;
  update.first = {b.values_t, Lp, 1, k.data, k.row, L};
  update.gain = chunk.state_out;
  update.keep = has_state ? chunk.keep : 0;
  update.out = c;
  update.out_row = Kp;
  update.width = K;
  mix(update, 0, V);
  weighted_sum(k, L, K, column, update.keep, chunk.state_out, n);
}

// Updates copies after a change of the state's gradient. Kept states are values by keys.
[[maybe_unused]] static void set_dstate(HeadGradients& head) {
  const MlstmShape& s = head.call.shape;
  transpose_scaled(head.b.dc, round_up16(s.value_dim), s.key_dim, s.value_dim, nullptr, head.b.dc_t,
                   round_up16(s.key_dim));
  head.has_dstate = true;
}

// Returns C . dC + n . dn of state `i` and the current gradient.
[[maybe_unused]] static double state_dot(const HeadGradients& head, int64_t i) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim;
  double total = dot(head.b.dn, state_n_at(head, i), K);
  for (int64_t e = 0; e < V; ++e)
    total += dot(head.b.dc_t + e * round_up16(K), state_at(head, i) + e * round_up16(K), K);
  return total;
}

// Adds to the gradient of a row's maximum, which belongs to token `largest`.
[[maybe_unused]] static void add_to_largest(HeadGradients& head, int32_t largest, double value) {
  head.stabiliser_to_come += value;
  if (largest < 0)
    head.dinitial_m += value;
  else
    head.b.dlargest[largest] += value;
}

// Reads dC and dn from the gradient of the last state; `last` is the index of that state.
[[maybe_unused]] static void load_dlast(HeadGradients& head, int64_t last, int32_t largest) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Vp = round_up16(V), Kp = round_up16(K);
  const MlstmState& from = head.call.dlast;
  copy_rows(from.c + head.item * K * V, V, K, V, head.b.dc, Vp);
  copy_rows(from.n + head.item * K, K, 1, K, head.b.dn, Kp);
  set_dstate(head);
  // C and n are multiples of exp(-m).
  add_to_largest(head, largest, from.m[head.item] - state_dot(head, last));
  head.rows_to_come = from.m[head.item];
}

// Computes u, d and the normaliser's part of the gates' gradient. Returns the rows of h.
[[maybe_unused]] static Matrix prepare_rows(HeadGradients& head, const MlstmChunk& chunk) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t V = s.value_dim, Vp = round_up16(V), L = chunk.length;
  const Matrix h = rows_as_floats(head.h, chunk.start, L, V, b.h);
  const Matrix dh = rows_as_floats(head.dh, chunk.start, L, V, b.dh);
  for (int64_t t = 0; t < L; ++t) {
    const int64_t token = chunk.start + t, at = s.reverse ? s.tokens - 1 - token : token;
    b.normaliser[t] = head.normaliser[at];
    b.row_sign[t] = head.row_sign[at];
    b.dh_h[t] = dot(dh.data + t * dh.row, h.data + t * h.row, V);
  }
  for (int64_t t = 0; t < L; t += W) {
    const int64_t left = L - t;
    const vf row = get(b.gates.row + chunk.start + t, left), inverse = 1.0f / load(b.normaliser + t);
    const vf dnormaliser = -get(b.dh_h + t, left) * inverse;
    store(b.row_scale + t, row * inverse);
    store(b.u_sum + t, row * get(b.row_sign + t, left) * dnormaliser);
    put(b.drow + chunk.start + t, s.eps * dnormaliser, left);
  }
  for (int64_t t = 0; t < L; ++t) {
    const int64_t token = chunk.start + t;
    const float *dh_t = dh.data + t * dh.row, scale = b.row_scale[t];
    for (int64_t e = 0; e < Vp; e += W) {
      const int64_t left = V - e;
      store(b.u + t * Vp + e, left > 0 ? scale * get(dh_t + e, left) : vf{});
    }
    add_to_largest(head, b.gates.largest[token], b.drow[token]);
  }
  return h;
}

// The rows of a chunk as floats; q, k and v are null unless a form, or the state, reads them.
struct ChunkInputs {
  Matrix q, k, v, h;
  bool reads_state;
  const float *c_t, *n;  // the state before the chunk
};

// Transposes k and v times their columns' factors.
[[maybe_unused]] static void transpose_inputs(const HeadGradients& head, const MlstmChunk& chunk,
                                              const ChunkInputs& in) {
  const MlstmShape& s = head.call.shape;
  const float* column = head.b.gates.column + chunk.start;
  const int64_t Lp = round_up16(s.chunk);
  transpose_scaled(in.k.data, in.k.row, chunk.length, s.key_dim, column, head.b.keys_t, Lp);
  transpose_scaled(in.v.data, in.v.row, chunk.length, s.value_dim, column, head.b.values_t, Lp);
}

// Makes `out` add the chunk's own pairs to its contents.
[[maybe_unused]] static void add_pairs_to(Mix& out) {
  out.init_row = nullptr;
  out.first = {};
  out.gain = out.keep = 1;
}

TESSERA_INLINE Mix mix_into(const MatrixOut& to, int64_t width) {
  Mix mix;
  mix.out = to.data, mix.out_row = to.row, mix.width = width;
  return mix;
}

template <class Form>
static void query_gradient(const HeadGradients& head, const MlstmChunk& chunk, const ChunkInputs& in,
                           const Form& form) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t K = s.key_dim, V = s.value_dim, L = chunk.length;
  const MatrixOut dq = rows_to_write(head.dq, chunk.start, K, b.dq);
  Mix out = mix_into(dq, K);
  if (in.reads_state) {
    out.init_row = b.u_sum;
    out.init_vector = in.n;
    out.first = {b.u, round_up16(V), 1, in.c_t, round_up16(K), V};
    out.gain = chunk.state_in;
    mix(out, 0, L);
    for (int64_t t = 0; t < L; ++t)
      b.drow[chunk.start + t] += dot(in.q.data + t * in.q.row, dq.data + t * dq.row, K);
    add_pairs_to(out);
  }
  form.add_queries(out);
  write_rows(head.dq, chunk.start, L, K, dq);
}

template <class Form>
static void key_gradient(const HeadGradients& head, const MlstmChunk& chunk, const ChunkInputs& in,
                         const Form& form) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t K = s.key_dim, L = chunk.length;
  const MatrixOut dk = rows_to_write(head.dk, chunk.start, K, b.dk);
  Mix out = mix_into(dk, K);
  if (head.has_dstate) {
    out.init_row = b.gates.column + chunk.start;
    out.init_vector = b.dn;
    out.first = {b.values_t, 1, round_up16(s.chunk), b.dc_t, round_up16(K), s.value_dim};
    out.gain = chunk.state_out;
    mix(out, 0, L);
    for (int64_t t = 0; t < L; ++t)
      b.dcolumn[chunk.start + t] += dot(in.k.data + t * in.k.row, dk.data + t * dk.row, K);
    add_pairs_to(out);
  }
  form.add_keys(out);
  write_rows(head.dk, chunk.start, L, K, dk);
}

template <class Form>
static void value_gradient(const HeadGradients& head, const MlstmChunk& chunk, const Form& form) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t V = s.value_dim, L = chunk.length;
  const MatrixOut dv = rows_to_write(head.dv, chunk.start, V, b.dv);
  Mix out = mix_into(dv, V);
  if (head.has_dstate) {
    out.first = {b.keys_t, 1, round_up16(s.chunk), b.dc, round_up16(V), s.key_dim};
    out.gain = chunk.state_out;
  }
  form.add_values(out);
  write_rows(head.dv, chunk.start, L, V, dv);
}

// Computes dC and dn of the state before the chunk.
[[maybe_unused]] static void state_gradient(HeadGradients& head, const MlstmChunk& chunk, const Matrix& q) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t K = s.key_dim, V = s.value_dim, L = chunk.length, Vp = round_up16(V);
  Mix out = mix_into({b.dc, Vp}, V);
  out.first = {q.data, 1, q.row, b.u, Vp, L};
  out.gain = chunk.state_in;
  out.keep = head.has_dstate ? chunk.keep : 0;
  mix(out, 0, K);
  weighted_sum(q, L, K, b.u_sum, out.keep, chunk.state_in, b.dn);
  set_dstate(head);
}

[[maybe_unused]] static void gate_gradients(HeadGradients& head, const MlstmChunk& chunk) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  int64_t i_stride, f_stride;
  float* digate = walk(head.call.digate, s, head.item, &i_stride);
  float* dfgate = walk(head.call.dfgate, s, head.item, &f_stride);
  float* slope = b.gates.fgate + chunk.start;  // the gate itself is no longer needed
  for (int64_t t = 0; t < chunk.length; t += W) {
    const int64_t left = chunk.length - t;
    const vf x = left >= W ? load(slope + t) : load_part(slope + t, left);
    if (left >= W)
      store(slope + t, sigmoid(-x));
    else
      store_part(slope + t, sigmoid(-x), left);
  }
  for (int64_t t = chunk.length - 1; t >= 0; --t) {
    const int64_t token = chunk.start + t;
    const double column_sum = b.dcolumn[token] + b.dlargest[token];
    head.rows_to_come += b.drow[token] - column_sum;
    head.stabiliser_to_come -= b.dlargest[token];
    digate[token * i_stride] = (float)column_sum;
    dfgate[token * f_stride] = (float)head.rows_to_come * slope[t];
  }
}

// `state`: index of the state before the chunk.
template <class Form>
static void backward_chunk(HeadGradients& head, const MlstmChunk& chunk, int64_t state, bool has_state) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const int64_t L = chunk.length;
  ChunkInputs in = {};
  in.reads_state = has_state && chunk.state_in != 0;
  in.c_t = state_at(head, state), in.n = state_n_at(head, state);
  if (Form::kTakesFloats || has_state) in.q = rows_as_floats(head.q, chunk.start, L, s.key_dim, b.queries);
  if (Form::kTakesFloats || head.has_dstate) {
    in.k = rows_as_floats(head.k, chunk.start, L, s.key_dim, b.keys);
    in.v = rows_as_floats(head.v, chunk.start, L, s.value_dim, b.values);
    transpose_inputs(head, chunk, in);
  }
  in.h = prepare_rows(head, chunk);
  Form form(head, chunk, in);
  form.pairs();
  query_gradient(head, chunk, in, form);
  key_gradient(head, chunk, in, form);
  value_gradient(head, chunk, form);
  gate_gradients(head, chunk);
  if (has_state) {
    state_gradient(head, chunk, in.q);
    head.rows_to_come = head.stabiliser_to_come + state_dot(head, state);
  }
}

[[maybe_unused]] static void store_dinitial(const HeadGradients& head, bool has_tokens) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Vp = round_up16(V);
  const MlstmStateOut& to = head.call.dinitial;
  const float *c = head.call.initial.c + head.item * K * V, *n = head.call.initial.n + head.item * K;
  double dm = head.dinitial_m;
  for (int64_t d = 0; d < K; ++d) {
    const float dn = head.has_dstate ? head.b.dn[d] : 0;
    to.n[head.item * K + d] = dn;
    dm += (double)dn * n[d];
    for (int64_t e = 0; e < V; ++e) {
      const float dc = head.has_dstate ? head.b.dc[d * Vp + e] : 0;
      to.c[(head.item * K + d) * V + e] = dc;
      dm += (double)dc * c[d * V + e];
    }
  }
  if (!has_tokens) dm = head.has_dstate ? head.call.dlast.m[head.item] : 0;
  to.m[head.item] = (float)dm;
}

// Plans all chunks of the head; returns their number.
[[maybe_unused]] static int64_t plan_chunks(const HeadGradients& head, double m) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  int32_t largest = -1;
  int64_t count = 0;
  for (int64_t start = 0; start < s.tokens; start += b.chunks[count++].length)
    b.chunks[count] = next_chunk(b.gates, s, start, &m, &largest);
  return count;
}

// Chunks are processed in segments as long as the kept states allow. Slot 0 holds the state before the
// segment, slots 1 … those after its chunks. With several segments (strong gates that cut many chunks) the
// states before the segments follow.
//
// A Form works on the chunk's rows in the working memory:
//   kTakesFloats                 true if it reads q, k, v of ChunkInputs and the output of transpose_inputs
//   Form(head, chunk, in)        prepares the inputs of the products; may round u, and d_t with it
//   pairs()                      S and dS; adds G's sums to b.drow and b.dcolumn
//   add_queries, add_keys(out)   adds the pairs' part of dq, dk to the part that `out` keeps
//   add_values(out)              the same for dv, with out.first
template <class Form>
static void walk_back(HeadGradients& head) {
  const MlstmShape& s = head.call.shape;
  const MlstmBackwardScratch& b = head.b;
  const MlstmState& initial = head.call.initial;
  read_gates(head.call.igate, head.call.fgate, s, head.item, b.gates);
  for (int64_t t = 0; t < s.tokens; ++t) b.dcolumn[t] = b.dlargest[t] = 0;
  const int64_t count = plan_chunks(head, initial.c ? initial.m[head.item] : -__builtin_inf());
  const bool has_initial = load_initial_state(head), wants_last = head.call.dlast.c != nullptr;
  const int64_t kept = mlstm_kept_states(s);
  int64_t segment = count;
  if (count + 1 > kept) {
    for (segment = 1; segment * segment < count;) ++segment;
    const int64_t segments = (count + segment - 1) / segment;
    const int64_t Kp = round_up16(s.key_dim);
    for (int64_t i = 0; i < count; ++i) {
      if (i % segment == 0 && (i > 0 || has_initial)) {
        const int64_t slot = kept - segments + i / segment;
        memcpy(state_at(head, slot), state_at(head, 0), sizeof(float) * s.value_dim * Kp);
        memcpy(state_n_at(head, slot), state_n_at(head, 0), sizeof(float) * Kp);
      }
      if (i / segment < segments - 1) advance_state(head, b.chunks[i], i > 0 || has_initial, 0, 0);
    }
  }
  const int64_t segments = segment ? (count + segment - 1) / segment : 0;
  for (int64_t g = segments - 1; g >= 0; --g) {
    const int64_t first = g * segment, end = first + segment < count ? first + segment : count;
    if (segments > 1 && (g > 0 || has_initial)) {
      const int64_t Kp = round_up16(s.key_dim), slot = kept - segments + g;
      memcpy(state_at(head, 0), state_at(head, slot), sizeof(float) * s.value_dim * Kp);
      memcpy(state_n_at(head, 0), state_n_at(head, slot), sizeof(float) * Kp);
    }
    for (int64_t i = first; i < end; ++i)
      if (i + 1 < end || (wants_last && end == count))
        advance_state(head, b.chunks[i], i > 0 || has_initial, i - first, i - first + 1);
    if (wants_last && end == count) load_dlast(head, end - first, b.gates.largest[s.tokens - 1]);
    for (int64_t i = end - 1; i >= first; --i)
      backward_chunk<Form>(head, b.chunks[i], i - first, i > 0 || has_initial);
  }
  if (count == 0 && wants_last) load_dlast(head, 0, -1);
  if (head.call.dinitial.c) store_dinitial(head, count > 0);
}

template <class Form>
static void run_heads_back(const MlstmBackward& call, int64_t begin, int64_t end, void* scratch) {
  const MlstmShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const MlstmBackwardScratch b = lay_out_backward(arena, s);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t saved = item * s.tokens;
    HeadGradients head = {call,
                          b,
                          walk(call.q, s, item),
                          walk(call.k, s, item),
                          walk(call.v, s, item),
                          walk(call.h, s, item),
                          walk(call.dh, s, item),
                          walk(call.dq, s, item),
                          walk(call.dk, s, item),
                          walk(call.dv, s, item),
                          call.normaliser + saved,
                          call.row_sign + saved,
                          item,
                          false,
                          0,
                          0,
                          0};
    walk_back<Form>(head);
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
