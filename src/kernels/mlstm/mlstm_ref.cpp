#include "kernels/mlstm/mlstm_ref.h"

#include <cmath>
#include <limits>

#include "kernels/reference.h"

namespace tessera::kernels {
namespace {

template <class Real>
constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

template <class Real>
Real log_sigmoid(Real x) {
  return std::min(x, Real(0)) - std::log1p(std::exp(-std::abs(x)));
}

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

// Row t of the weights exp(log D_ts - m_t): columns 0 … t for the tokens, column T for the initial state.
template <class Real>
struct Row {
  std::vector<Real> weight;
  Real m;
  int64_t largest;  // the column with m
};

template <class Real>
Row<Real> weights(const MlstmHead<Real>& in, const std::vector<Real>& log_f_sum, int64_t t) {
  const int64_t T = in.tokens;
  Row<Real> row{std::vector<Real>(T + 1, 0.0), -kInfinity<Real>, T};
  std::vector<Real> log_d(T + 1, -kInfinity<Real>);
  for (int64_t s = 0; s <= t; ++s) log_d[s] = log_f_sum[t] - log_f_sum[s] + in.igate[s];
  if (in.has_initial) log_d[T] = log_f_sum[t] + in.initial.m;
  for (int64_t s = 0; s <= T; ++s)
    if (log_d[s] > row.m || std::isnan(log_d[s])) row.m = log_d[s], row.largest = s;
  for (int64_t s = 0; s <= T; ++s)
    if (s <= t || (s == T && in.has_initial)) row.weight[s] = std::exp(log_d[s] - row.m);
  return row;
}

template <class Real>
std::vector<Real> log_f_sums(const MlstmHead<Real>& in) {
  std::vector<Real> sums(in.tokens);
  Real sum = 0;
  for (int64_t t = 0; t < in.tokens; ++t) sums[t] = sum += log_sigmoid(in.fgate[t]);
  return sums;
}

// q_t C_0 (V numbers) and q_t . n_0 (the one after them).
template <class Real>
std::vector<Real> read_initial(const MlstmHead<Real>& in, int64_t t) {
  const int64_t K = in.key_dim, V = in.value_dim;
  std::vector<Real> read(V + 1, 0.0);
  for (int64_t d = 0; d < K; ++d) {
    add_scaled(read.data(), in.q[t * K + d], &in.initial.c[d * V], V);
    read[V] += in.q[t * K + d] * in.initial.n[d];
  }
  return read;
}

template <class Real>
MlstmStateRef<Real> last_state(const MlstmHead<Real>& in, const std::vector<Real>& log_f_sum) {
  const int64_t T = in.tokens, K = in.key_dim, V = in.value_dim;
  if (T == 0 && in.has_initial) return in.initial;
  MlstmStateRef<Real> last{std::vector<Real>(K * V, 0.0), std::vector<Real>(K, 0.0), -kInfinity<Real>};
  if (T == 0) return last;
  const Row<Real> row = weights(in, log_f_sum, T - 1);
  last.m = row.m;
  if (in.has_initial) {
    add_scaled(last.c.data(), row.weight[T], in.initial.c.data(), K * V);
    add_scaled(last.n.data(), row.weight[T], in.initial.n.data(), K);
  }
  for (int64_t s = 0; s < T; ++s)
    for (int64_t d = 0; d < K; ++d) {
      const Real key = row.weight[s] * in.k[s * K + d];
      last.n[d] += key;
      add_scaled(&last.c[d * V], key, &in.v[s * V], V);
    }
  return last;
}

}  // namespace

template <class Real>
MlstmHeadOutput<Real> mlstm_head_forward(const MlstmHead<Real>& in) {
  const int64_t T = in.tokens, K = in.key_dim, V = in.value_dim;
  const Real scale = 1 / std::sqrt(static_cast<Real>(K));
  const std::vector<Real> log_f_sum = log_f_sums(in);
  MlstmHeadOutput<Real> out{std::vector<Real>(T * V, 0.0), std::vector<Real>(T), std::vector<Real>(T),
                            last_state(in, log_f_sum)};
  for (int64_t t = 0; t < T; ++t) {
    const Row<Real> row = weights(in, log_f_sum, t);
    Real* h = &out.h[t * V];
    Real row_sum = 0;
    for (int64_t s = 0; s <= t; ++s) {
      const Real p = row.weight[s] * scale * dot(&in.q[t * K], &in.k[s * K], K);
      row_sum += p;
      add_scaled(h, p, &in.v[s * V], V);
    }
    if (in.has_initial) {
      const std::vector<Real> read = read_initial(in, t);
      add_scaled(h, row.weight[T] * scale, read.data(), V);
      row_sum += row.weight[T] * scale * read[V];
    }
    const Real floor = std::exp(-row.m);
    out.normaliser[t] = (std::abs(row_sum) <= floor ? floor : std::abs(row_sum)) + in.eps;
    out.row_sign[t] = std::abs(row_sum) <= floor ? 0 : std::copysign(1.0, row_sum);
    for (int64_t e = 0; e < V; ++e) h[e] /= out.normaliser[t];
  }
  return out;
}

template <class Real>
MlstmHeadGradients<Real> mlstm_head_backward(const MlstmHead<Real>& in, const std::vector<Real>& dh,
                                             bool has_dlast, const MlstmStateRef<Real>& dlast) {
  const int64_t T = in.tokens, K = in.key_dim, V = in.value_dim;
  const Real scale = 1 / std::sqrt(static_cast<Real>(K));
  const std::vector<Real> log_f_sum = log_f_sums(in);
  const MlstmHeadOutput<Real> out = mlstm_head_forward(in);
  MlstmHeadGradients<Real> g{
      std::vector<Real>(T * K, 0.0), std::vector<Real>(T * K, 0.0),
      std::vector<Real>(T * V, 0.0), std::vector<Real>(T, 0.0),
      std::vector<Real>(T, 0.0),     {std::vector<Real>(K * V, 0.0), std::vector<Real>(K, 0.0), 0.0}};
  std::vector<Real> dlog_f_sum(T, 0.0);
  // One entry of d log D: log D_ts = F_t - F_s + log i_s, or F_t + m_0 for the initial state's column.
  const auto add_dlog = [&](int64_t t, int64_t s, Real value) {
    dlog_f_sum[t] += value;
    if (s == T) {
      g.dinitial.m += value;
    } else {
      dlog_f_sum[s] -= value;
      g.digate[s] += value;
    }
  };
  for (int64_t t = 0; t < T; ++t) {
    const Row<Real> row = weights(in, log_f_sum, t);
    const Real normaliser = out.normaliser[t];
    const Real* dh_t = &dh[t * V];
    const Real dnormaliser = -dot(dh_t, &out.h[t * V], V) / normaliser;
    const Real drow_sum = out.row_sign[t] * dnormaliser;
    for (int64_t s = 0; s <= t; ++s) {
      const Real qk = scale * dot(&in.q[t * K], &in.k[s * K], K), p = row.weight[s] * qk;
      const Real dp = dot(dh_t, &in.v[s * V], V) / normaliser + drow_sum;
      add_scaled(&g.dq[t * K], row.weight[s] * dp * scale, &in.k[s * K], K);
      add_scaled(&g.dk[s * K], row.weight[s] * dp * scale, &in.q[t * K], K);
      add_scaled(&g.dv[s * V], p / normaliser, dh_t, V);
      add_dlog(t, s, p * dp);
    }
    if (in.has_initial) {
      const Real w = row.weight[T] * scale;
      const std::vector<Real> read = read_initial(in, t);
      add_dlog(t, T, w * (dot(dh_t, read.data(), V) / normaliser + drow_sum * read[V]));
      for (int64_t d = 0; d < K; ++d) {
        const Real* c = &in.initial.c[d * V];
        g.dq[t * K + d] += w * (dot(dh_t, c, V) / normaliser + drow_sum * in.initial.n[d]);
        add_scaled(&g.dinitial.c[d * V], w * in.q[t * K + d] / normaliser, dh_t, V);
        g.dinitial.n[d] += w * in.q[t * K + d] * drow_sum;
      }
    }
    // In h the stabiliser remains only as the weight of eps, which is on the stabilised scale.
    add_dlog(t, row.largest, in.eps * dnormaliser);
  }
  if (has_dlast && T == 0) g.dinitial = dlast;
  if (has_dlast && T > 0) {
    const Row<Real> row = weights(in, log_f_sum, T - 1);
    Real through_scale = 0;  // C and n are multiples of exp(-m)
    for (int64_t s = 0; s < T; ++s) {
      std::vector<Real> dkey(K);
      for (int64_t d = 0; d < K; ++d) {
        dkey[d] = row.weight[s] * (dot(&dlast.c[d * V], &in.v[s * V], V) + dlast.n[d]);
        add_scaled(&g.dv[s * V], row.weight[s] * in.k[s * K + d], &dlast.c[d * V], V);
      }
      add_scaled(&g.dk[s * K], Real(1), dkey.data(), K);
      const Real value = dot(dkey.data(), &in.k[s * K], K);
      add_dlog(T - 1, s, value);
      through_scale += value;
    }
    if (in.has_initial) {
      const Real value = row.weight[T] * (dot(dlast.c.data(), in.initial.c.data(), K * V) +
                                          dot(dlast.n.data(), in.initial.n.data(), K));
      add_scaled(g.dinitial.c.data(), row.weight[T], dlast.c.data(), K * V);
      add_scaled(g.dinitial.n.data(), row.weight[T], dlast.n.data(), K);
      add_dlog(T - 1, T, value);
      through_scale += value;
    }
    add_dlog(T - 1, row.largest, dlast.m - through_scale);
  }
  Real dlog_f = 0;
  for (int64_t t = T - 1; t >= 0; --t) {
    dlog_f += dlog_f_sum[t];
    g.dfgate[t] = dlog_f / (1 + std::exp(in.fgate[t]));
  }
  return g;
}

template MlstmHeadOutput<double> mlstm_head_forward(const MlstmHead<double>&);
template MlstmHeadOutput<float> mlstm_head_forward(const MlstmHead<float>&);
template MlstmHeadGradients<double> mlstm_head_backward(const MlstmHead<double>&, const std::vector<double>&,
                                                        bool, const MlstmStateRef<double>&);
template MlstmHeadGradients<float> mlstm_head_backward(const MlstmHead<float>&, const std::vector<float>&,
                                                       bool, const MlstmStateRef<float>&);

namespace reference {
namespace {

MlstmStateRef<double> read_state(const MlstmState& from, const MlstmShape& s, int64_t item) {
  const int64_t K = s.key_dim, V = s.value_dim;
  return {std::vector<double>(from.c + item * K * V, from.c + (item + 1) * K * V),
          std::vector<double>(from.n + item * K, from.n + (item + 1) * K), from.m[item]};
}

void write_state(const MlstmStateRef<double>& state, const MlstmStateOut& to, int64_t item) {
  std::copy(state.c.begin(), state.c.end(), to.c + item * static_cast<int64_t>(state.c.size()));
  std::copy(state.n.begin(), state.n.end(), to.n + item * static_cast<int64_t>(state.n.size()));
  to.m[item] = static_cast<float>(state.m);
}

template <class Call>
MlstmHead<double> read_head(const Call& call, int64_t item) {
  const MlstmShape& s = call.shape;
  const HeadAt at{item / s.heads, item % s.heads, s.tokens, s.reverse};
  MlstmHead<double> head;
  head.tokens = s.tokens;
  head.key_dim = s.key_dim;
  head.value_dim = s.value_dim;
  head.eps = s.eps;
  head.has_initial = call.initial.c != nullptr;
  head.q = read_rows(call.q, at, s.key_dim);
  head.k = read_rows(call.k, at, s.key_dim);
  head.v = read_rows(call.v, at, s.value_dim);
  head.igate = read_gates(call.igate, at);
  head.fgate = read_gates(call.fgate, at);
  if (head.has_initial) head.initial = read_state(call.initial, s, item);
  return head;
}

void mlstm_forward(const MlstmForward& call, int64_t begin, int64_t end, void*) {
  const MlstmShape& s = call.shape;
  for (int64_t item = begin; item < end; ++item) {
    const HeadAt at{item / s.heads, item % s.heads, s.tokens, s.reverse};
    const MlstmHeadOutput<double> out = mlstm_head_forward(read_head(call, item));
    write_rows(out.h, call.h, at, s.value_dim);
    if (call.normaliser) {
      write_gates(out.normaliser, {call.normaliser, s.heads * s.tokens, s.tokens, 1}, at);
      write_gates(out.row_sign, {call.row_sign, s.heads * s.tokens, s.tokens, 1}, at);
    }
    if (call.last.c) write_state(out.last, call.last, item);
  }
}

void mlstm_backward(const MlstmBackward& call, int64_t begin, int64_t end, void*) {
  const MlstmShape& s = call.shape;
  for (int64_t item = begin; item < end; ++item) {
    const HeadAt at{item / s.heads, item % s.heads, s.tokens, s.reverse};
    const bool has_dlast = call.dlast.c != nullptr;
    const MlstmHeadGradients<double> g =
        mlstm_head_backward(read_head(call, item), read_rows(call.dh, at, s.value_dim), has_dlast,
                            has_dlast ? read_state(call.dlast, s, item) : MlstmStateRef<double>{});
    write_rows(g.dq, call.dq, at, s.key_dim);
    write_rows(g.dk, call.dk, at, s.key_dim);
    write_rows(g.dv, call.dv, at, s.value_dim);
    write_gates(g.digate, call.digate, at);
    write_gates(g.dfgate, call.dfgate, at);
    if (call.dinitial.c) write_state(g.dinitial, call.dinitial, item);
  }
}

}  // namespace

extern const MlstmFunctions mlstm;
const MlstmFunctions mlstm = {mlstm_forward, mlstm_backward};

}  // namespace reference
}  // namespace tessera::kernels
