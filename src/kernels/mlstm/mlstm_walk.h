// The forward pass's loop over heads and chunks, for any form of the products. Per-ISA. The formulas and the
// factored weights are in mlstm.h. Letters as there; L is a chunk's length, R its reference.
#pragma once

#include "kernels/mlstm/mlstm_parts.h"

namespace tessera::kernels::TESSERA_ISA {

constexpr int64_t kRowBlock = 16;  // rows per step: their scores are computed, then used

// A head in the forward pass, and its working memory.
struct WalkedHead {
  const MlstmForward& call;
  MlstmForwardScratch f;
  HeadWalk<const void*> q, k, v;
  HeadWalk<void*> h;
  float *normaliser, *row_sign;  // in memory order, or null
  bool has_state;
};

[[maybe_unused]] static void load_state(WalkedHead& head, int64_t item, double* m) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Vp = round_up16(V);
  const MlstmState& from = head.call.initial;
  *m = from.c ? from.m[item] : -__builtin_inf();
  head.has_state = from.c != nullptr;
  if (!head.has_state) return;
  copy_rows(from.c + item * K * V, V, K, V, head.f.c, Vp);
  copy_rows(from.n + item * K, K, 1, K, head.f.n, round_up16(K));
}

[[maybe_unused]] static void store_state(const WalkedHead& head, int64_t item, double m) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Vp = round_up16(V);
  const MlstmStateOut& to = head.call.last;
  for (int64_t d = 0; d < K; ++d) {
    for (int64_t e = 0; e < V; ++e) to.c[(item * K + d) * V + e] = head.has_state ? head.f.c[d * Vp + e] : 0;
    to.n[item * K + d] = head.has_state ? head.f.n[d] : 0;
  }
  to.m[item] = (float)m;
}

// Converts the rows' sums (relative to R) into factors for the numerators, for rows begin … begin+15.
[[maybe_unused]] static void normalise(const WalkedHead& head, const MlstmChunk& chunk, int64_t begin) {
  const MlstmForwardScratch& f = head.f;
  for (int64_t t = begin; t < begin + kRowBlock; t += W) {
    const int64_t left = chunk.length - t;
    if (left <= 0) return;
    const vf row = get(f.gates.row + chunk.start + t, left),
             floor = get(f.gates.floor + chunk.start + t, left);
    const vf r = load(f.row_sum + t) * row, size = abs(r);
    const vf normaliser = (size <= floor ? floor : size) + head.call.shape.eps;
    store(f.row_scale + t, row / normaliser);
    if (!head.normaliser) continue;
    store(f.normaliser + t, normaliser);
    store(f.row_sign + t, size <= floor ? vf{} : r < 0 ? splat(-1.0f) : splat(1.0f));
  }
}

[[maybe_unused]] static void keep_normaliser(const WalkedHead& head, const MlstmChunk& chunk) {
  const MlstmShape& s = head.call.shape;
  if (!head.normaliser) return;
  for (int64_t t = 0; t < chunk.length; ++t) {
    const int64_t token = chunk.start + t, at = s.reverse ? s.tokens - 1 - token : token;
    head.normaliser[at] = head.f.normaliser[t];
    head.row_sign[at] = head.f.row_sign[t];
  }
}

template <class Form>
static void forward_chunk(WalkedHead& head, const MlstmChunk& chunk, bool state_wanted) {
  const MlstmForwardScratch& f = head.f;
  exp_differences(f.gates.m + chunk.start, -1, 0, 1, f.gates.floor + chunk.start, chunk.length);
  Form form(head, chunk);
  for (int64_t t = 0; t < chunk.length; t += kRowBlock) {
    const int64_t end = t + kRowBlock < chunk.length ? t + kRowBlock : chunk.length;
    form.scores(t, end);
    normalise(head, chunk, t);
    form.output(t, end);
  }
  form.finish();
  keep_normaliser(head, chunk);
  if (!state_wanted) return;
  form.update(head.has_state ? chunk.keep : 0);
  head.has_state = true;
}

// A Form works on the chunk's rows in the working memory:
//   Form(head, chunk)     prepares the inputs of the products; f.row_sum is the rows' part from the state
//   scores(t, end)        the rows' weights without their scale; adds their sums to f.row_sum
//   output(t, end)        h of these rows from the weights, the state and f.row_scale
//   finish()              writes h if output has not
//   update(keep)          the state after the chunk, with `keep` of the old one
template <class Form>
static void run_heads(const MlstmForward& call, int64_t begin, int64_t end, void* scratch) {
  const MlstmShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const MlstmForwardScratch f = lay_out_forward(arena, s);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t saved = item * s.tokens;
    WalkedHead head = {call,
                       f,
                       walk(call.q, s, item),
                       walk(call.k, s, item),
                       walk(call.v, s, item),
                       walk(call.h, s, item),
                       call.normaliser ? call.normaliser + saved : nullptr,
                       call.normaliser ? call.row_sign + saved : nullptr,
                       false};
    double m;
    int32_t largest = -1;
    load_state(head, item, &m);
    read_gates(call.igate, call.fgate, s, item, f.gates);
    for (int64_t start = 0; start < s.tokens;) {
      const MlstmChunk chunk = next_chunk(f.gates, s, start, &m, &largest);
      start += chunk.length;
      const int64_t ahead = s.tokens - start < chunk.length ? s.tokens - start : chunk.length;
      fetch_rows(head.q, start, ahead, s.key_dim), fetch_rows(head.k, start, ahead, s.key_dim);
      fetch_rows(head.v, start, ahead, s.value_dim), fetch_rows(head.h, start, ahead, s.value_dim);
      forward_chunk<Form>(head, chunk, start < s.tokens || call.last.c);
    }
    if (call.last.c) store_state(head, item, m);
  }
}

}  // namespace tessera::kernels::TESSERA_ISA
