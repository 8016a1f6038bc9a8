#include "kernels/attention/attention_ref.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "kernels/attention/attention_layout.h"
#include "kernels/reference.h"

namespace tessera::kernels {
namespace {

template <class Real>
Real dot(const Real* a, const Real* b, int64_t n) {
  Real total = 0;
  for (int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}

template <class Real>
void add_scaled(Real* to, Real scale, const Real* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
}

template <class Real>
std::vector<Real> rotated(std::vector<Real> rows, int64_t dim, const RotaryRef<Real>& table, Real direction) {
  for (size_t i = 0; i < table.cos.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    Real& a = rows[at / table.pairs * dim + at % table.pairs * 2];
    Real& b = *(&a + 1);
    const Real c = table.cos[i], s = direction * table.sin[i];
    std::tie(a, b) = std::pair(a * c - b * s, b * c + a * s);
  }
  return rows;
}

// p_ij for all pairs, 0 where the mask hides keys; lse in units of log 2.
template <class Real>
struct Weights {
  std::vector<Real> p, lse;
};

template <class Real>
Weights<Real> weights_of(const AttentionHead<Real>& in, const std::vector<Real>& q,
                         const std::vector<Real>& k) {
  Weights<Real> w{std::vector<Real>(in.queries * in.keys), std::vector<Real>(in.queries)};
  for (int64_t i = 0; i < in.queries; ++i) {
    const KeyRange seen = seen_from(in.mask, in.mask.first_query + i, in.keys);
    Real* row = w.p.data() + i * in.keys;
    Real most = -std::numeric_limits<Real>::infinity(), total = 0;
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      row[j] = in.scale * dot(&q[i * in.dim], &k[j * in.dim], in.dim);
      if (!in.bias.empty()) row[j] += in.bias[i * in.keys + j];
      most = std::max(most, row[j]);
    }
    const bool none = most == -std::numeric_limits<Real>::infinity();
    for (int64_t j = seen.begin; j < seen.end; ++j) total += row[j] = none ? 0 : std::exp(row[j] - most);
    for (int64_t j = seen.begin; j < seen.end; ++j) row[j] = none ? 0 : row[j] / total;
    w.lse[i] = none ? std::numeric_limits<Real>::infinity()
                    : (most + std::log(total)) / static_cast<Real>(0.6931471805599453);
  }
  return w;
}

template <class Real>
Real keep(const AttentionMask& mask, int64_t i, int64_t j) {
  return j > mask.first_query + i ? static_cast<Real>(mask.future_weight) : Real(1);
}

RotaryRef<double> rotary_of(const Rotary& table, int64_t head, int64_t tokens) {
  RotaryRef<double> read{table.pairs, {}, {}};
  if (!table.cos) return {};
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t p = 0; p < table.pairs; ++p) {
      read.cos.push_back(table.cos[head * table.head + t * table.token + p]);
      read.sin.push_back(table.sin[head * table.head + t * table.token + p]);
    }
  return read;
}

}  // namespace

template <class Real>
AttentionHeadOutput<Real> attention_head_forward(const AttentionHead<Real>& in) {
  const auto q = rotated(in.q, in.dim, in.q_rotary, Real(1)), k = rotated(in.k, in.dim, in.k_rotary, Real(1));
  Weights<Real> w = weights_of(in, q, k);
  std::vector<Real> out(in.queries * in.dim, 0.0);
  for (int64_t i = 0; i < in.queries; ++i)
    for (int64_t j = 0; j < in.keys; ++j)
      add_scaled(&out[i * in.dim], keep<Real>(in.mask, i, j) * w.p[i * in.keys + j], &in.v[j * in.dim],
                 in.dim);
  return {std::move(out), std::move(w.lse)};
}

template <class Real>
AttentionHeadGradients<Real> attention_head_backward(const AttentionHead<Real>& in,
                                                     const std::vector<Real>& dout) {
  const int64_t D = in.dim;
  const auto q = rotated(in.q, D, in.q_rotary, Real(1)), k = rotated(in.k, D, in.k_rotary, Real(1));
  const Weights<Real> w = weights_of(in, q, k);
  const std::vector<Real> out = attention_head_forward(in).out;
  AttentionHeadGradients<Real> g{std::vector<Real>(in.queries * D, 0.0), std::vector<Real>(in.keys * D, 0.0),
                                 std::vector<Real>(in.keys * D, 0.0),
                                 std::vector<Real>(in.queries * in.keys, 0.0)};
  for (int64_t i = 0; i < in.queries; ++i) {
    const Real* d = &dout[i * D];
    const Real dout_out = dot(d, &out[i * D], D);
    for (int64_t j = 0; j < in.keys; ++j) {
      const Real p = w.p[i * in.keys + j], kept = keep<Real>(in.mask, i, j);
      const Real ds = p * (kept * dot(d, &in.v[j * D], D) - dout_out);
      g.dbias[i * in.keys + j] = ds;
      add_scaled(&g.dv[j * D], kept * p, d, D);
      add_scaled(&g.dq[i * D], ds * in.scale, &k[j * D], D);
      add_scaled(&g.dk[j * D], ds * in.scale, &q[i * D], D);
    }
  }
  g.dq = rotated(std::move(g.dq), D, in.q_rotary, Real(-1));
  g.dk = rotated(std::move(g.dk), D, in.k_rotary, Real(-1));
  return g;
}

template AttentionHeadOutput<double> attention_head_forward(const AttentionHead<double>&);
template AttentionHeadOutput<float> attention_head_forward(const AttentionHead<float>&);
template AttentionHeadGradients<double> attention_head_backward(const AttentionHead<double>&,
                                                                const std::vector<double>&);
template AttentionHeadGradients<float> attention_head_backward(const AttentionHead<float>&,
                                                               const std::vector<float>&);

AttentionHead<double> attention_head_of(const AttentionShape& shape, const AttentionMask& mask,
                                        const HeadRows& q, const HeadRows& k, const HeadRows& v,
                                        const Rotary& q_rotary, const Rotary& k_rotary,
                                        const AttentionBias& bias, int64_t item) {
  const int64_t batch = item / shape.heads, head = item % shape.heads;
  AttentionHead<double> h{shape.queries, shape.keys, shape.dim, shape.scale, mask, {}, {}, {}, {}, {}, {}};
  h.q = read_rows(q, {batch, head, shape.queries, false}, shape.dim);
  h.k = read_rows(k, {batch, head, shape.keys, false}, shape.dim);
  h.v = read_rows(v, {batch, head, shape.keys, false}, shape.dim);
  h.q_rotary = rotary_of(q_rotary, head, shape.queries);
  h.k_rotary = rotary_of(k_rotary, head, shape.keys);
  if (bias.data)
    for (int64_t i = 0; i < shape.queries; ++i)
      for (int64_t j = 0; j < shape.keys; ++j)
        h.bias.push_back(
            bias.data[batch % bias.batches * bias.batch + head * bias.head + i * bias.query + j]);
  return h;
}

namespace reference {
namespace {

void forward(const AttentionForward& call, int64_t begin, int64_t end, void*) {
  const AttentionShape& s = call.shape;
  const int64_t pieces = (s.queries + s.query_rows - 1) / s.query_rows;
  for (int64_t u = begin; u < end; ++u) {
    if (u % pieces != 0) continue;  // the unit with a head's first query processes the whole head
    const int64_t item = u / pieces;
    const auto out = attention_head_forward(attention_head_of(s, call.mask, call.q, call.k, call.v,
                                                              call.q_rotary, call.k_rotary, call.bias, item));
    write_rows(out.out, call.out, {item / s.heads, item % s.heads, s.queries, false}, s.dim);
    for (int64_t i = 0; call.lse && i < s.queries; ++i)
      call.lse[item * s.queries + i] = static_cast<float>(out.lse[i]);
  }
}

void backward(const AttentionBackward& call, int64_t begin, int64_t end, float* dbias, void*) {
  const AttentionShape& s = call.shape;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t batch = item / s.heads, head = item % s.heads;
    const auto g = attention_head_backward(attention_head_of(s, call.mask, call.q, call.k, call.v,
                                                             call.q_rotary, call.k_rotary, call.bias, item),
                                           read_rows(call.dout, {batch, head, s.queries, false}, s.dim));
    write_rows(g.dq, call.dq, {batch, head, s.queries, false}, s.dim);
    write_rows(g.dk, call.dk, {batch, head, s.keys, false}, s.dim);
    write_rows(g.dv, call.dv, {batch, head, s.keys, false}, s.dim);
    if (!dbias) continue;
    const int64_t at =
        call.bias.head ? batch % call.bias.batches * s.heads + head : batch % call.bias.batches;
    for (size_t i = 0; i < g.dbias.size(); ++i)
      dbias[at * s.queries * s.keys + static_cast<int64_t>(i)] += static_cast<float>(g.dbias[i]);
  }
}

}  // namespace

extern const AttentionFunctions attention;
const AttentionFunctions attention = {forward, backward};

}  // namespace reference
}  // namespace tessera::kernels
