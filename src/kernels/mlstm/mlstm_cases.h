// The cases that the mLSTM's tests check and its benchmark times: one type, one way to fill a call.
#pragma once

#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include "kernels/mlstm/mlstm.h"
#include "kernels/testing.h"

namespace tessera::kernels::testing {

enum class GateKind { usual, initial, extreme, low, high, forgetting };

struct MlstmCase {
  int64_t batch, heads, tokens, key_dim, value_dim;
  GateKind gates = GateKind::usual;
  bool reverse = false;
  Layout layout = Layout::tokens_first;
  int64_t chunk = 0;
  bool states = false;
  Element element = Element::f32;
  bool aligned = false;  // aligned like a program's tensors
};

inline std::ostream& operator<<(std::ostream& out, const MlstmCase& c) {
  return out << "B" << c.batch << " H" << c.heads << " T" << c.tokens << " K" << c.key_dim << " V"
             << c.value_dim << " gates " << static_cast<int>(c.gates) << (c.reverse ? " reverse" : "")
             << " layout " << static_cast<int>(c.layout) << " chunk " << c.chunk
             << (c.states ? " states" : "") << (c.element == Element::bf16 ? " bf16" : "");
}

// Sizes around every block boundary: vectors (4, 8, 16), tiles (4, 8 rows; 3 vectors), blocks of 16 rows,
// chunks.
inline const std::vector<MlstmCase>& mlstm_cases() {
  using enum GateKind;
  static const std::vector<MlstmCase> all = {
      {1, 1, 1, 1, 1},
      {1, 2, 2, 3, 5},
      {2, 2, 7, 16, 16},
      {1, 3, 8, 4, 4, initial, true},
      {2, 1, 9, 24, 8, usual, false, Layout::heads_first},
      {1, 1, 15, 33, 17, usual, true, Layout::heads_first},
      {1, 2, 16, 16, 32, usual, false, Layout::tokens_first_wide},
      {1, 2, 17, 48, 48, initial, true, Layout::tokens_first_wide},
      {1, 2, 31, 8, 64},
      {1, 1, 33, 64, 40, usual, true},
      {2, 4, 49, 48, 48, initial},
      {1, 4, 64, 48, 48, initial, true},
      {1, 2, 65, 80, 96, usual, false, Layout::tokens_first, 16},
      {1, 2, 100, 96, 96, initial, true, Layout::tokens_first, 33},
      {1, 2, 196, 96, 96, initial},
      {1, 1, 257, 48, 48, usual, false, Layout::tokens_first, 64},
      {1, 1, 300, 16, 16, initial, true, Layout::heads_first},
      {2, 2, 12, 16, 24, usual, false, Layout::tokens_first, 0, true},
      {1, 2, 70, 24, 16, initial, true, Layout::tokens_first_wide, 9, true},
      {1, 2, 1, 48, 48, usual, false, Layout::tokens_first, 0, true},
      {1, 3, 49, 16, 16, extreme},
      {1, 2, 90, 32, 32, extreme, true, Layout::tokens_first, 0, true},
      {1, 2, 400, 16, 16, extreme, false, Layout::tokens_first, 32},
      {1, 2, 49, 16, 16, low},
      {1, 2, 49, 16, 16, high},
      {1, 2, 130, 32, 16, forgetting},
      {1, 2, 70, 16, 16, low, true, Layout::tokens_first, 8, true},
      {1, 2, 70, 16, 16, forgetting, true, Layout::tokens_first, 8, true},
  };
  return all;
}

// Vision-LSTM's cell with freshly initialised gates.
inline MlstmCase published_mlstm_case(int64_t batch, int64_t heads, int64_t tokens, int64_t dim,
                                      int64_t chunk = 0) {
  MlstmCase c{batch, heads, tokens, dim, dim, GateKind::initial};
  c.chunk = chunk, c.aligned = true;
  return c;
}
// Many short sequences; one image of 224 to 1792 pixels per side; a batch of images.
inline std::vector<MlstmCase> mlstm_bench_cases() {
  std::vector<MlstmCase> all = {published_mlstm_case(128, 4, 64, 48)};
  for (const int64_t tokens : {196, 784, 3136, 12544}) all.push_back(published_mlstm_case(1, 4, tokens, 96));
  all.push_back(published_mlstm_case(8, 4, 196, 96));
  return all;
}

// All arguments of one call, filled with random numbers.
struct MlstmProblem {
  explicit MlstmProblem(const MlstmCase& config, uint64_t seed = 1)
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
    return {c.batch,
            c.heads,
            c.tokens,
            width,
            c.layout,
            c.element,
            c.aligned ? 0 : c.element == Element::bf16 ? 3 : 1};
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
  // The working memory contains leftovers of earlier use; each run gets different ones.
  void run(const MlstmFunctions& functions) {
    static int runs = 0;
    const float kinds[] = {std::numeric_limits<float>::quiet_NaN(), 1e-42f,
                           std::numeric_limits<float>::infinity(), -3e38f};
    std::vector<float> scratch(mlstm_scratch_bytes(shape(), true) / 4 + 32, kinds[runs++ % 4]);
    auto* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    functions.forward(forward(), 0, items(), aligned);
    functions.backward(backward(), 0, items(), aligned);
  }

  MlstmCase c;
  HeadTensor q, k, v, h, dh, dq, dk, dv, igate, fgate, digate, dfgate;
  std::vector<float> normaliser, row_sign, c0, n0, m0, c1, n1, m1, dc0, dn0, dm0, dc1, dn1, dm1;
};

}  // namespace tessera::kernels::testing
