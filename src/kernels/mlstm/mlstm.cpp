// mLSTM forward; the formulas and the idea of the factored weights are in mlstm.h. Built once per instruction
// set. Letters as there; L is a chunk's length, R its reference.
#include "kernels/mlstm/mlstm_parts.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int64_t kRowBlock = 16;  // rows whose scores are computed and then used at once

struct Head {
  const MlstmForward& call;
  MlstmForwardScratch f;
  HeadWalk<const void*> q, k, v;
  HeadWalk<void*> h;
  float *normaliser, *row_sign;  // in memory order; null if not wanted
  bool has_state;
};

void load_state(Head& head, int64_t item, double* m) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Vp = round_up16(V);
  const MlstmState& from = head.call.initial;
  *m = from.c ? from.m[item] : -__builtin_inf();
  head.has_state = from.c != nullptr;
  if (!head.has_state) return;
  copy_rows(from.c + item * K * V, V, K, V, head.f.c, Vp);
  copy_rows(from.n + item * K, K, 1, K, head.f.n, round_up16(K));
}

void store_state(const Head& head, int64_t item, double m) {
  const MlstmShape& s = head.call.shape;
  const int64_t K = s.key_dim, V = s.value_dim, Vp = round_up16(V);
  const MlstmStateOut& to = head.call.last;
  for (int64_t d = 0; d < K; ++d) {
    for (int64_t e = 0; e < V; ++e) to.c[(item * K + d) * V + e] = head.has_state ? head.f.c[d * Vp + e] : 0;
    to.n[item * K + d] = head.has_state ? head.f.n[d] : 0;
  }
  to.m[item] = (float)m;
}

// From the rows' sums (relative to R) to what numerators are to be multiplied by, for rows begin … begin+15.
void normalise(const Head& head, const MlstmChunk& chunk, int64_t begin) {
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

void keep_normaliser(const Head& head, const MlstmChunk& chunk) {
  const MlstmShape& s = head.call.shape;
  if (!head.normaliser) return;
  for (int64_t t = 0; t < chunk.length; ++t) {
    const int64_t token = chunk.start + t, at = s.reverse ? s.tokens - 1 - token : token;
    head.normaliser[at] = head.f.normaliser[t];
    head.row_sign[at] = head.f.row_sign[t];
  }
}

void forward_chunk(Head& head, const MlstmChunk& chunk, bool state_wanted) {
  const MlstmShape& s = head.call.shape;
  const MlstmForwardScratch& f = head.f;
  const int64_t K = s.key_dim, V = s.value_dim, L = chunk.length, Lp = round_up16(s.chunk),
                Vp = round_up16(V);
  const Matrix q = rows_as_floats(head.q, chunk.start, L, K, f.queries);
  const Matrix k = rows_as_floats(head.k, chunk.start, L, K, f.keys);
  const Matrix v = rows_as_floats(head.v, chunk.start, L, V, f.values);
  const MatrixOut h = rows_to_write(head.h, chunk.start, V, f.h);
  const float* column = f.gates.column + chunk.start;
  const bool reads_state = head.has_state && chunk.state_in != 0;
  transpose_scaled(k.data, k.row, L, K, column, f.keys_t, Lp);
  exp_differences(f.gates.m + chunk.start, -1, 0, 1, f.gates.floor + chunk.start, L);

  Triangle scores;
  scores.product = {q.data, q.row, 1, f.keys_t, Lp, K};
  scores.out = f.scores;
  scores.out_row = Lp;
  scores.row_sum = f.row_sum;
  Mix output;
  if (reads_state) {
    output.first = {q.data, q.row, 1, f.c, Vp, K};
    output.gain = chunk.state_in;
  }
  output.second = {f.scores, Lp, 1, v.data, v.row, L};
  output.part = Part::lower;
  output.row_scale = f.row_scale;
  output.out = h.data;
  output.out_row = h.row;
  output.width = V;
  for (int64_t t = 0; t < L; ++t)
    f.row_sum[t] = reads_state ? chunk.state_in * dot(q.data + t * q.row, f.n, K) : 0;
  for (int64_t t = 0; t < L; t += kRowBlock) {
    const int64_t end = t + kRowBlock < L ? t + kRowBlock : L;
    triangle(scores, t, end);
    normalise(head, chunk, t);
    mix(output, t, end);
  }
  write_rows(head.h, chunk.start, L, V, h);
  keep_normaliser(head, chunk);

  if (!state_wanted) return;
  Mix update;
  update.first = {f.keys_t, Lp, 1, v.data, v.row, L};
  update.gain = chunk.state_out;
  update.keep = head.has_state ? chunk.keep : 0;
  update.out = f.c;
  update.out_row = Vp;
  update.width = V;
  mix(update, 0, K);
  weighted_sum(k, L, K, column, update.keep, chunk.state_out, f.n);
  head.has_state = true;
}

void mlstm_forward(const MlstmForward& call, int64_t begin, int64_t end, void* scratch) {
  const MlstmShape& s = call.shape;
  Arena arena = {(char*)scratch, 0};
  const MlstmForwardScratch f = lay_out_forward(arena, s);
  for (int64_t item = begin; item < end; ++item) {
    const int64_t saved = item * s.tokens;
    Head head = {call,
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
      forward_chunk(head, chunk, start < s.tokens || call.last.c);
    }
    if (call.last.c) store_state(head, item, m);
  }
}

}  // namespace

extern const MlstmFunctions mlstm;
const MlstmFunctions mlstm = {mlstm_forward, mlstm_backward};

}  // namespace tessera::kernels::TESSERA_ISA
