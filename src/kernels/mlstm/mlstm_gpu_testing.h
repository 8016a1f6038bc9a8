// Shared by the tests of the mLSTM for GPUs: a problem in bfloat16, its definition in double, and errors of rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <vector>

#include "kernels/gpu/gpu_testing.h"
#include "kernels/mlstm/mlstm_ref.h"

namespace tessera::kernels::gpu_testing {

struct CellCase {
  int64_t batch, heads, tokens, dim, chunk;
  bool reverse = false;
  double spread = 1;   // deviation of gates
  bool after = false;  // norm, skip and gate
  bool initial = false;
  double forget_gate = 3;  // mean of its preactivations; far above zero, nothing is forgotten
  double input_gate = 0;   // mean of its preactivations; far below zero, the floor of the normaliser decides
};

inline std::ostream& operator<<(std::ostream& out, const CellCase& c) {
  return out << "B" << c.batch << " H" << c.heads << " T" << c.tokens << " D" << c.dim << " chunk " << c.chunk
             << (c.reverse ? " reverse" : "") << " gates " << c.spread << (c.after ? " after" : "")
             << (c.initial ? " initial" : "");
}

// All tensors of a case. Queries and keys have a mean, which keeps row sums away from zero.
struct CellProblem {
  explicit CellProblem(const CellCase& config)
      : c(config),
        items(c.batch * c.heads),
        rows(items * c.tokens),
        chunks(gpu::chunks_of(c.tokens, c.chunk)),
        q(Element::bf16, normal(rows * c.dim, 1, 0.7)),
        k(Element::bf16, normal(rows * c.dim, 2, 0.7)),
        v(Element::bf16, normal(rows * c.dim, 3)),
        act(Element::bf16, normal(rows * c.dim, 4)),
        z(Element::bf16, normal(rows * c.dim, 5)),
        h(Element::bf16, rows * c.dim),
        h_rest(Element::bf16, rows * c.dim),
        y(Element::bf16, rows * c.dim),
        igate(Element::f32, normal(rows, 6, c.input_gate, c.spread)),
        fgate(Element::f32, normal(rows, 7, c.forget_gate, c.spread)),
        weight(Element::f32, normal(c.heads * c.dim, 8, 1, 0.1)),
        bias(Element::f32, normal(c.heads * c.dim, 9, 0, 0.1)),
        skip(Element::f32, normal(c.heads * c.dim, 10, 0, 0.1)),
        normaliser(Element::f32, rows),
        row_sign(Element::f32, rows),
        c0(Element::f32, normal(items * c.dim * c.dim, 11)),
        n0(Element::f32, normal(items * c.dim, 12, 1)),
        m0(Element::f32, normal(items, 13)),
        states_c(Element::bf16, items * chunks * c.dim * c.dim),
        states_n(Element::f32, items * chunks * c.dim),
        states_m(Element::f32, items * chunks),
        last_c(Element::f32, items * c.dim * c.dim),
        last_n(Element::f32, items * c.dim),
        last_m(Element::f32, items),
        dh(Element::bf16, normal(rows * c.dim, 14)),
        dq(Element::bf16, rows * c.dim),
        dk(Element::bf16, rows * c.dim),
        dv(Element::bf16, rows * c.dim),
        digate(Element::f32, rows),
        dfgate(Element::f32, rows),
        row_gradient(Element::f32, rows),
        dots(Element::f32, 2 * gpu::mlstm_slices(c.dim) * rows),
        dc(Element::bf16, items * chunks * c.dim * c.dim),
        dn(Element::f32, items * chunks * c.dim),
        crossing(Element::f32, items * chunks * gpu::mlstm_slices(c.dim) * gpu::mlstm_slices(c.dim)) {}

  bool has_states() const { return chunks > 1 || c.initial; }
  gpu::MlstmCell cell() {
    gpu::MlstmCell call;
    call.batch = c.batch, call.heads = c.heads, call.tokens = c.tokens, call.key_dim = call.value_dim = c.dim;
    call.chunk = c.chunk, call.reverse = c.reverse;
    call.q = q.as<uint16_t>(), call.k = k.as<uint16_t>(), call.v = v.as<uint16_t>(),
    call.h = h.as<uint16_t>(), call.h_rest = h_rest.as<uint16_t>();
    call.igate = igate.as<float>(), call.fgate = fgate.as<float>();
    call.normaliser = normaliser.as<float>(), call.row_sign = row_sign.as<float>();
    if (has_states())
      call.c = states_c.as<uint16_t>(), call.n = states_n.as<float>(), call.m = states_m.as<float>();
    if (c.after) {
      call.act = act.as<uint16_t>(), call.z = z.as<uint16_t>(), call.y = y.as<uint16_t>();
      call.norm_weight = weight.as<float>(), call.norm_bias = bias.as<float>(), call.skip = skip.as<float>();
      call.norm_eps = 1e-5f;
    }
    return call;
  }
  gpu::MlstmStates states() {
    gpu::MlstmStates call;
    call.batch = c.batch, call.heads = c.heads, call.tokens = c.tokens, call.key_dim = call.value_dim = c.dim;
    call.chunk = c.chunk, call.reverse = c.reverse;
    call.k = k.as<uint16_t>(), call.v = v.as<uint16_t>();
    call.igate = igate.as<float>(), call.fgate = fgate.as<float>();
    if (c.initial) call.c0 = c0.as<float>(), call.n0 = n0.as<float>(), call.m0 = m0.as<float>();
    call.c = states_c.as<uint16_t>(), call.n = states_n.as<float>(), call.m = states_m.as<float>();
    call.last_c = last_c.as<float>(), call.last_n = last_n.as<float>(), call.last_m = last_m.as<float>();
    return call;
  }

  // After cell().
  gpu::MlstmGradients gradients() {
    gpu::MlstmGradients call;
    call.batch = c.batch, call.heads = c.heads, call.tokens = c.tokens, call.key_dim = call.value_dim = c.dim;
    call.chunk = c.chunk, call.reverse = c.reverse;
    call.q = q.as<uint16_t>(), call.k = k.as<uint16_t>(), call.v = v.as<uint16_t>();
    call.igate = igate.as<float>(), call.fgate = fgate.as<float>();
    call.h = h.as<uint16_t>(), call.h_rest = h_rest.as<uint16_t>(), call.dh = dh.as<uint16_t>();
    call.normaliser = normaliser.as<float>(), call.row_sign = row_sign.as<float>();
    if (has_states()) {
      call.c = states_c.as<uint16_t>(), call.n = states_n.as<float>(), call.m = states_m.as<float>();
      call.dc = dc.as<uint16_t>(), call.dn = dn.as<float>(), call.crossing = crossing.as<float>();
    }
    call.row_gradient = row_gradient.as<float>(), call.dots = dots.as<float>();
    call.dq = dq.as<uint16_t>(), call.dk = dk.as<uint16_t>(), call.dv = dv.as<uint16_t>();
    call.digate = digate.as<float>(), call.dfgate = dfgate.as<float>();
    return call;
  }

  // Returns the index of a token's row, the t-th of a walk.
  int64_t row(int64_t item, int64_t t) const {
    const int64_t place = c.reverse ? c.tokens - 1 - t : t;
    return (item / c.heads * c.tokens + place) * c.heads + item % c.heads;
  }
  std::vector<double> walked(const DeviceArray& from, int64_t item) const {
    std::vector<double> all;
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t d = 0; d < c.dim; ++d) all.push_back(from.get(row(item, t) * c.dim + d));
    return all;
  }
  std::vector<double> walked_gate(const DeviceArray& from, int64_t item) const {
    std::vector<double> all;
    for (int64_t t = 0; t < c.tokens; ++t)
      all.push_back(from.get(item * c.tokens + (c.reverse ? c.tokens - 1 - t : t)));
    return all;
  }
  MlstmHead<double> head(int64_t item) const {
    MlstmHead<double> in;
    in.tokens = c.tokens, in.key_dim = in.value_dim = c.dim;
    in.q = walked(q, item), in.k = walked(k, item), in.v = walked(v, item);
    in.igate = walked_gate(igate, item), in.fgate = walked_gate(fgate, item);
    in.has_initial = c.initial;
    const auto part = [&](const DeviceArray& from, int64_t size) {
      std::vector<double> out;
      for (int64_t i = 0; i < size; ++i) out.push_back(from.get(item * size + i));
      return out;
    };
    if (c.initial) in.initial = {part(c0, c.dim * c.dim), part(n0, c.dim), m0.get(item)};
    return in;
  }
  // Norm, skip and gate of the definition's h.
  std::vector<double> after(const std::vector<double>& of, int64_t item) const {
    std::vector<double> out;
    for (int64_t t = 0; t < c.tokens; ++t) {
      double mean = 0, square = 0;
      for (int64_t d = 0; d < c.dim; ++d) mean += of[t * c.dim + d] / static_cast<double>(c.dim);
      for (int64_t d = 0; d < c.dim; ++d)
        square += std::pow(of[t * c.dim + d] - mean, 2) / static_cast<double>(c.dim);
      for (int64_t d = 0; d < c.dim; ++d) {
        const int64_t channel = item % c.heads * c.dim + d, at = row(item, t) * c.dim + d;
        const double normed = (of[t * c.dim + d] - mean) / std::sqrt(square + 1e-5);
        const double x = normed * weight.get(channel) + bias.get(channel) + skip.get(channel) * act.get(at);
        out.push_back(x * z.get(at) / (1 + std::exp(-z.get(at))));
      }
    }
    return out;
  }

  CellCase c;
  int64_t items, rows, chunks;
  DeviceArray q, k, v, act, z, h, h_rest, y, igate, fgate, weight, bias, skip, normaliser, row_sign, c0, n0,
      m0, states_c, states_n, states_m, last_c, last_n, last_m, dh, dq, dk, dv, digate, dfgate, row_gradient,
      dots, dc, dn, crossing;
};

// The relative errors, by Euclidean norm, of all rows and of the worst one. NaN counts as infinite.
struct RowErrors {
  double all = 0, worst = 0;
};
inline RowErrors row_errors(const std::vector<double>& got, const std::vector<double>& want, int64_t width) {
  RowErrors errors;
  double difference = 0, size = 0;
  const auto count = static_cast<int64_t>(want.size());
  const double least = 1e-6 * std::sqrt(static_cast<double>(width));  // norm of rows near 0
  for (int64_t begin = 0; begin < count; begin += width) {
    double d = 0, s = 0;
    for (int64_t i = begin; i < begin + width; ++i)
      d += std::pow(got[i] - want[i], 2), s += std::pow(want[i], 2);
    difference += d, size += s;
    const double row = std::sqrt(d) / (std::sqrt(s) + least);
    errors.worst = row <= 1e30 ? std::max(errors.worst, row) : HUGE_VAL;
  }
  errors.all = difference <= 1e30 ? std::sqrt(difference / (size + 1e-30)) : HUGE_VAL;
  return errors;
}

}  // namespace tessera::kernels::gpu_testing
