// What the tests of the mLSTM cell share: a problem with everything that one call needs, and its results by
// name beside the reference's.
#pragma once

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/mlstm/mlstm.h"
#include "kernels/mlstm/mlstm_ref.h"
#include "kernels/testing.h"

namespace tessera::kernels::mlstm_testing {

using testing::HeadTensor;
using testing::Layout;
using testing::normal;
using testing::uniform;
using Doubles = std::vector<double>;

enum class GateKind { usual, initial, extreme, low, high, forgetting };

struct Case {
  int64_t batch, heads, tokens, key_dim, value_dim;
  GateKind gates = GateKind::usual;
  bool reverse = false;
  Layout layout = Layout::tokens_first;
  int64_t chunk = 0;
  bool states = false;
  Element element = Element::f32;
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.batch << " H" << c.heads << " T" << c.tokens << " K" << c.key_dim << " V"
             << c.value_dim << " gates " << static_cast<int>(c.gates) << (c.reverse ? " reverse" : "")
             << " layout " << static_cast<int>(c.layout) << " chunk " << c.chunk
             << (c.states ? " states" : "") << (c.element == Element::bf16 ? " bf16" : "");
}

// Everything one call needs, filled with random numbers.
struct Problem {
  explicit Problem(const Case& config, uint64_t seed = 1)
      : c(config),
        q(tensor(c.key_dim)),
        k(tensor(c.key_dim)),
        v(tensor(c.value_dim)),
        h(tensor(c.value_dim)),
        dh(tensor(c.value_dim)),
        dq(tensor(c.key_dim)),
        dk(tensor(c.key_dim)),
        dv(tensor(c.value_dim)),
        igate(gate()),
        fgate(gate()),
        digate(gate()),
        dfgate(gate()) {
    const int64_t items = c.batch * c.heads, rows = items * c.tokens;
    const int64_t c_size = items * c.key_dim * c.value_dim, n_size = items * c.key_dim;
    // Queries and keys with a mean keep row sums away from zero, where h itself is ill-conditioned.
    q.fill(normal(rows * c.key_dim, seed, 1, 0.7)), k.fill(normal(rows * c.key_dim, seed + 1, 1, 0.7));
    v.fill(normal(rows * c.value_dim, seed + 2)), dh.fill(normal(rows * c.value_dim, seed + 3));
    igate.fill(igates(rows, seed + 4)), fgate.fill(fgates(rows, seed + 5));
    normaliser.resize(rows), row_sign.resize(rows);
    c0 = normal(c_size, seed + 6), n0 = normal(n_size, seed + 7, 1), m0 = normal(items, seed + 8);
    dc1 = normal(c_size, seed + 9), dn1 = normal(n_size, seed + 10), dm1 = normal(items, seed + 11);
    c1 = c0, n1 = n0, m1 = m0, dc0 = c0, dn0 = n0, dm0 = m0;
  }
  HeadTensor tensor(int64_t width) const {
    return {c.batch, c.heads, c.tokens, width, c.layout, c.element, c.element == Element::bf16 ? 3 : 1};
  }
  HeadTensor gate() const { return {c.batch, c.heads, c.tokens, 1, c.layout}; }
  std::vector<float> igates(int64_t count, uint64_t seed) const {
    if (c.gates == GateKind::extreme) return uniform(count, seed, -40, 40);
    return normal(count, seed, c.gates == GateKind::low ? -40 : c.gates == GateKind::high ? 40 : 0);
  }
  std::vector<float> fgates(int64_t count, uint64_t seed) const {
    if (c.gates == GateKind::extreme) return uniform(count, seed, -40, 40);
    if (c.gates == GateKind::initial) return uniform(count, seed, 3, 6);
    if (c.gates == GateKind::forgetting) return normal(count, seed, -20);
    return normal(count, seed, 1, 2);
  }
  MlstmShape shape() const {
    return mlstm_plan({c.batch, c.heads, c.tokens, c.key_dim, c.value_dim, c.reverse, 1e-6f, c.chunk});
  }
  static Gates as_gates(HeadTensor& g) {
    const HeadRows r = g.in();
    return {static_cast<const float*>(r.data), r.batch, r.head, r.token};
  }
  static GatesOut as_gates_out(HeadTensor& g) {
    const HeadRowsOut r = g.out();
    return {static_cast<float*>(r.data), r.batch, r.head, r.token};
  }
  MlstmForward forward() {
    MlstmForward call;
    call.shape = shape();
    call.q = q.in(), call.k = k.in(), call.v = v.in(), call.h = h.out();
    call.igate = as_gates(igate), call.fgate = as_gates(fgate);
    call.normaliser = normaliser.data(), call.row_sign = row_sign.data();
    if (c.states)
      call.initial = {c0.data(), n0.data(), m0.data()}, call.last = {c1.data(), n1.data(), m1.data()};
    return call;
  }
  MlstmBackward backward() {
    MlstmBackward call;
    call.shape = shape();
    call.q = q.in(), call.k = k.in(), call.v = v.in(), call.h = h.in(), call.dh = dh.in();
    call.igate = as_gates(igate), call.fgate = as_gates(fgate);
    call.normaliser = normaliser.data(), call.row_sign = row_sign.data();
    call.dq = dq.out(), call.dk = dk.out(), call.dv = dv.out();
    call.digate = as_gates_out(digate), call.dfgate = as_gates_out(dfgate);
    if (c.states) {
      call.initial = {c0.data(), n0.data(), m0.data()};
      call.dlast = {dc1.data(), dn1.data(), dm1.data()};
      call.dinitial = {dc0.data(), dn0.data(), dm0.data()};
    }
    return call;
  }
  int64_t items() const { return c.batch * c.heads; }
  // Working memory holds whatever was there before: each run meets another kind of it.
  void run(const MlstmFunctions& functions) {
    static int runs = 0;
    const float kinds[] = {std::numeric_limits<float>::quiet_NaN(), 1e-42f,
                           std::numeric_limits<float>::infinity(), -3e38f};
    std::vector<float> scratch(mlstm_scratch_bytes(shape(), true) / 4 + 32, kinds[runs++ % 4]);
    auto* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    functions.forward(forward(), 0, items(), aligned);
    functions.backward(backward(), 0, items(), aligned);
  }

  Case c;
  HeadTensor q, k, v, h, dh, dq, dk, dv, igate, fgate, digate, dfgate;
  std::vector<float> normaliser, row_sign, c0, n0, m0, c1, n1, m1, dc0, dn0, dm0, dc1, dn1, dm1;
};

template <class Real, class From>
std::vector<Real> convert(const From& from) {
  return std::vector<Real>(from.begin(), from.end());
}

// (tokens, width) of an item in walking order.
inline Doubles walked(const HeadTensor& from, const Case& c, int64_t item, int64_t width) {
  Doubles rows = from.item(item);
  if (!c.reverse) return rows;
  Doubles flipped;
  for (int64_t t = c.tokens - 1; t >= 0; --t)
    flipped.insert(flipped.end(), rows.begin() + t * width, rows.begin() + (t + 1) * width);
  return flipped;
}

template <class Real>
MlstmStateRef<Real> state_of(const std::vector<float>& sc, const std::vector<float>& sn,
                             const std::vector<float>& sm, const Case& c, int64_t item) {
  const int64_t size = c.key_dim * c.value_dim;
  return {
      convert<Real>(std::vector<float>(sc.begin() + item * size, sc.begin() + (item + 1) * size)),
      convert<Real>(std::vector<float>(sn.begin() + item * c.key_dim, sn.begin() + (item + 1) * c.key_dim)),
      Real(sm[item])};
}

template <class Real>
MlstmHead<Real> head_of(const Problem& p, int64_t item) {
  const Case& c = p.c;
  MlstmHead<Real> head;
  head.tokens = c.tokens, head.key_dim = c.key_dim, head.value_dim = c.value_dim, head.eps = Real(1e-6f);
  head.q = convert<Real>(walked(p.q, c, item, c.key_dim)),
  head.k = convert<Real>(walked(p.k, c, item, c.key_dim));
  head.v = convert<Real>(walked(p.v, c, item, c.value_dim));
  head.igate = convert<Real>(walked(p.igate, c, item, 1)),
  head.fgate = convert<Real>(walked(p.fgate, c, item, 1));
  head.has_initial = c.states;
  if (c.states) head.initial = state_of<Real>(p.c0, p.n0, p.m0, c, item);
  return head;
}

// Every result of one item by name, with its row width.
struct Named {
  const char* name;
  int64_t width;
  Doubles values;
};
using Results = std::vector<Named>;

template <class Real>
Results expected(const Problem& p, int64_t item) {
  const MlstmHead<Real> head = head_of<Real>(p, item);
  const auto out = mlstm_head_forward(head);
  const auto dlast = p.c.states ? state_of<Real>(p.dc1, p.dn1, p.dm1, p.c, item) : MlstmStateRef<Real>{};
  const auto g =
      mlstm_head_backward(head, convert<Real>(walked(p.dh, p.c, item, p.c.value_dim)), p.c.states, dlast);
  const int64_t K = p.c.key_dim, V = p.c.value_dim;
  Results r = {{"h", V, convert<double>(out.h)},        {"normaliser", 1, convert<double>(out.normaliser)},
               {"dq", K, convert<double>(g.dq)},        {"dk", K, convert<double>(g.dk)},
               {"dv", V, convert<double>(g.dv)},        {"digate", 1, convert<double>(g.digate)},
               {"dfgate", 1, convert<double>(g.dfgate)}};
  if (p.c.states) {
    r.push_back({"C", V, convert<double>(out.last.c)});
    r.push_back({"n", 1, convert<double>(out.last.n)});
    r.push_back({"m", 1, {double(out.last.m)}});
    r.push_back({"dC0", V, convert<double>(g.dinitial.c)});
    r.push_back({"dn0", 1, convert<double>(g.dinitial.n)});
    r.push_back({"dm0", 1, {double(g.dinitial.m)}});
  }
  return r;
}

inline Results results(const Problem& p, int64_t item) {
  const Case& c = p.c;
  const int64_t K = c.key_dim, V = c.value_dim;
  Doubles normaliser(p.normaliser.begin() + item * c.tokens, p.normaliser.begin() + (item + 1) * c.tokens);
  if (c.reverse) std::reverse(normaliser.begin(), normaliser.end());
  Results r = {{"h", V, walked(p.h, c, item, V)},          {"normaliser", 1, normaliser},
               {"dq", K, walked(p.dq, c, item, K)},        {"dk", K, walked(p.dk, c, item, K)},
               {"dv", V, walked(p.dv, c, item, V)},        {"digate", 1, walked(p.digate, c, item, 1)},
               {"dfgate", 1, walked(p.dfgate, c, item, 1)}};
  if (c.states) {
    const auto last = state_of<double>(p.c1, p.n1, p.m1, c, item),
               d = state_of<double>(p.dc0, p.dn0, p.dm0, c, item);
    r.push_back({"C", V, last.c}), r.push_back({"n", 1, last.n}), r.push_back({"m", 1, {last.m}});
    r.push_back({"dC0", V, d.c}), r.push_back({"dn0", 1, d.n}), r.push_back({"dm0", 1, {d.m}});
  }
  return r;
}

}  // namespace tessera::kernels::mlstm_testing
