// Shared by the tests of the mLSTM cell: the named results of a problem and of the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/mlstm/mlstm_cases.h"
#include "kernels/mlstm/mlstm_ref.h"

namespace tessera::kernels::mlstm_testing {

using testing::GateKind;
using testing::HeadTensor;
using testing::Layout;
using Case = testing::MlstmCase;
using Problem = testing::MlstmProblem;
using Doubles = std::vector<double>;

template <class Real, class From>
std::vector<Real> convert(const From& from) {
  return std::vector<Real>(from.begin(), from.end());
}

// Returns (tokens, width) of an item in walking order.
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
