#include "kernels/mlstm/mlstm.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/mlstm/mlstm_ref.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::for_each_implementation;
using testing::HeadTensor;
using testing::largest;
using testing::largest_difference;
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

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.batch << " H" << c.heads << " T" << c.tokens << " K" << c.key_dim << " V"
             << c.value_dim << " gates " << static_cast<int>(c.gates) << (c.reverse ? " reverse" : "")
             << " layout " << static_cast<int>(c.layout) << " chunk " << c.chunk
             << (c.states ? " states" : "") << (c.element == Element::bf16 ? " bf16" : "");
}

// Sizes around every block's border: vectors (4, 8, 16), tiles (4, 8 rows; 3 vectors), blocks of 16 rows,
// chunks.
const std::vector<Case>& cases() {
  using enum GateKind;
  static const std::vector<Case> all = {
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
Doubles walked(const HeadTensor& from, const Case& c, int64_t item, int64_t width) {
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

Results results(const Problem& p, int64_t item) {
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

// Of what size the numbers are whose rounding a result must show, where the plain form is exact by luck: its
// own, or that of terms which cancel in it. `sizes` holds the size of each result, in the order of Results.
double rounding_scale(const std::string& result, const Case& c, const std::vector<double>& sizes) {
  const auto index = [&](const char* name) {
    const char* names[] = {"h", "normaliser", "dq", "dk",  "dv",  "digate", "dfgate",
                           "C", "n",          "m",  "dC0", "dn0", "dm0"};
    return std::find(std::begin(names), std::end(names), std::string(name)) - std::begin(names);
  };
  // A lone token's h is v up to a sign and eps: what is left of dq, dk and the gates is rounding.
  if (c.tokens == 1 && !c.states && index(result.c_str()) > 1) return 20;
  double size = sizes[index(result.c_str())];
  // The forget gates' gradient is a difference of sums as large as the input gates'.
  if (result == "dfgate") size = sizes[index("digate")];
  if (!c.states) return size;
  // C . dC and n . dn are sums of many terms of both signs.
  const double terms = std::sqrt(static_cast<double>(c.key_dim * c.value_dim));
  if (result == "dfgate" || result == "digate") size += terms * sizes[index("C")];
  if (result == "dm0") size += terms * sizes[index("dC0")];
  return result == "dC0" || result == "dn0" ? 2 * size : size;  // the factors of several chunks
}

// The bound of flash-attention's tests: at most twice the error of the plain form in float, both against
// double, the largest over several problems of the same kind.
TEST(Mlstm, EveryImplementationIsAsExactAsThePlainForm) {
  constexpr int kSeeds = 3;
  for (const Case& c : cases()) {
    std::vector<std::unique_ptr<Problem>> problems;
    std::vector<Results> want;
    std::vector<double> plain_error, scale;
    for (int seed = 0; seed < kSeeds; ++seed) {
      problems.push_back(std::make_unique<Problem>(c, 100 * seed + 1));
      for (int64_t item = 0; item < problems.back()->items(); ++item) {
        want.push_back(expected<double>(*problems.back(), item));
        const Results plain = expected<float>(*problems.back(), item);
        plain_error.resize(plain.size()), scale.resize(plain.size());
        for (size_t i = 0; i < plain.size(); ++i) {
          plain_error[i] =
              std::max(plain_error[i], largest_difference(plain[i].values, want.back()[i].values));
          scale[i] = std::max(scale[i], largest(want.back()[i].values));
        }
      }
    }
    for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
      auto expect = want.begin();
      for (const auto& p : problems) {
        p->run(functions);
        for (int64_t item = 0; item < p->items(); ++item, ++expect) {
          const Results got = results(*p, item);
          for (size_t i = 0; i < got.size(); ++i) {
            const double tolerance = 2 * plain_error[i] + 2.4e-7 * rounding_scale(got[i].name, c, scale);
            expect_within(got[i].values, (*expect)[i].values, tolerance,
                          text(isa, " ", c, " item ", item, " ", got[i].name), got[i].width);
          }
        }
      }
    });
  }
}

// Central differences of the reference in double check its gradients, which everything else is compared with.
TEST(Mlstm, TheReferenceHasTheGradientsOfItsForward) {
  using enum GateKind;
  for (const Case& c : {Case{1, 1, 6, 3, 4}, Case{1, 1, 5, 2, 3, usual, true, Layout::tokens_first, 0, true},
                        Case{1, 1, 7, 4, 2, low, false, Layout::tokens_first, 0, true},
                        Case{1, 1, 7, 4, 2, high}, Case{1, 1, 6, 3, 3, forgetting}}) {
    const Problem p(c);
    MlstmHead<double> head = head_of<double>(p, 0);
    head.eps = 1e-2;  // large, so that its small gradients are seen
    const Doubles dh = walked(p.dh, c, 0, c.value_dim);
    const auto dlast = c.states ? state_of<double>(p.dc1, p.dn1, p.dm1, c, 0) : MlstmStateRef<double>{};
    const auto loss = [&] {
      const auto out = mlstm_head_forward(head);
      double total = 0;
      for (size_t i = 0; i < dh.size(); ++i) total += dh[i] * out.h[i];
      if (!c.states) return total;
      for (size_t i = 0; i < dlast.c.size(); ++i) total += dlast.c[i] * out.last.c[i];
      for (size_t i = 0; i < dlast.n.size(); ++i) total += dlast.n[i] * out.last.n[i];
      return total + dlast.m * out.last.m;
    };
    auto g = mlstm_head_backward(head, dh, c.states, dlast);
    const auto expect_gradient = [&](double& x, double gradient, const char* what, size_t i) {
      const double step = 1e-5, was = x;
      x = was + step;
      const double up = loss();
      x = was - step;
      const double down = loss();
      x = was;
      EXPECT_NEAR(gradient, (up - down) / (2 * step), 1e-8 + 2e-7 * std::abs(gradient))
          << text(c, " ", what, "[", i, "]");
    };
    const auto expect_gradients = [&](Doubles& x, const Doubles& gradient, const char* what) {
      for (size_t i = 0; i < x.size(); ++i) expect_gradient(x[i], gradient[i], what, i);
    };
    expect_gradients(head.q, g.dq, "q"), expect_gradients(head.k, g.dk, "k"),
        expect_gradients(head.v, g.dv, "v");
    expect_gradients(head.igate, g.digate, "igate"), expect_gradients(head.fgate, g.dfgate, "fgate");
    if (!c.states) continue;
    expect_gradients(head.initial.c, g.dinitial.c, "C0"),
        expect_gradients(head.initial.n, g.dinitial.n, "n0");
    expect_gradient(head.initial.m, g.dinitial.m, "m0", 0);
  }
}

// A case computed with the published code in float64, as tests/data/kernels/README.md describes the file.
struct Golden {
  explicit Golden(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const auto read = [&](int64_t count) {
      std::vector<float> values(count);
      in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(float)));
      EXPECT_TRUE(in.good()) << path;
      return values;
    };
    const auto header = read(8);
    c.batch = static_cast<int64_t>(header[0]), c.heads = static_cast<int64_t>(header[1]);
    c.tokens = static_cast<int64_t>(header[2]), c.key_dim = static_cast<int64_t>(header[3]);
    c.value_dim = static_cast<int64_t>(header[4]), c.states = header[5] != 0, c.reverse = header[6] != 0;
    c.layout = Layout::heads_first;
    float_errors = read(c.states ? 12 : 6);
    problem = std::make_unique<Problem>(c);
    Problem& p = *problem;
    const int64_t items = c.batch * c.heads, rows = items * c.tokens, state = items * c.key_dim * c.value_dim;
    p.q.fill(read(rows * c.key_dim)), p.k.fill(read(rows * c.key_dim)), p.v.fill(read(rows * c.value_dim));
    p.igate.fill(read(rows)), p.fgate.fill(read(rows)), p.dh.fill(read(rows * c.value_dim));
    if (c.states) {
      p.c0 = read(state), p.n0 = read(items * c.key_dim), p.m0 = read(items);
      p.dc1 = read(state), p.dn1 = read(items * c.key_dim), p.dm1 = read(items);
    }
    for (int64_t width : {c.value_dim, c.key_dim, c.key_dim, c.value_dim, int64_t{1}, int64_t{1}})
      want.push_back(convert<double>(read(rows * width)));
    if (!c.states) return;
    for (int64_t count : {state, items * c.key_dim, items, state, items * c.key_dim, items})
      want.push_back(convert<double>(read(count)));
  }
  // The part of want[i] that belongs to an item, in walking order.
  Doubles want_of(size_t i, int64_t item, int64_t width) const {
    const int64_t size = static_cast<int64_t>(want[i].size()) / (c.batch * c.heads);
    Doubles part(want[i].begin() + item * size, want[i].begin() + (item + 1) * size);
    if (!c.reverse || i >= 6) return part;
    Doubles flipped;
    for (int64_t t = c.tokens - 1; t >= 0; --t)
      flipped.insert(flipped.end(), part.begin() + t * width, part.begin() + (t + 1) * width);
    return flipped;
  }

  Case c{};
  std::unique_ptr<Problem> problem;
  std::vector<float> float_errors;  // of the published code in float; negative where it has no such result
  std::vector<Doubles> want;        // h, dq, dk, dv, digate, dfgate, C, n, m, dC0, dn0, dm0
};

TEST(Mlstm, MatchesThePublishedCode) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(TESSERA_TEST_DATA "/kernels")) {
    if (file.path().extension() != ".f32") continue;
    ++files;
    const Golden golden(file.path());
    Problem& p = *golden.problem;
    const auto compare = [&](const std::string& who, int64_t item, Results got, bool exact) {
      got.erase(got.begin() + 1);  // the normaliser is not among the files' results
      for (size_t i = 0; i < got.size(); ++i) {
        if (golden.float_errors[i] < 0) continue;
        const Doubles want = golden.want_of(i, item, got[i].width);
        const double size = largest(golden.want[i]);
        const double tolerance = exact ? 2e-7 * size : 1e-5 * size + 10.0 * golden.float_errors[i];
        expect_within(got[i].values, want, tolerance,
                      text(who, " ", file.path().filename().string(), " item ", item, " ", got[i].name),
                      got[i].width);
      }
    };
    for (int64_t item = 0; item < p.items(); ++item)
      compare("definition", item, expected<double>(p, item), true);
    for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
      p.run(functions);
      for (int64_t item = 0; item < p.items(); ++item) compare(isa, item, results(p, item), false);
    });
  }
  EXPECT_GE(files, 3);
}

// With tokens one at a time and the state in place, as in streaming, the numbers are those of the whole.
TEST(Mlstm, StepsOfStreamingGiveTheWhole) {
  const Case c{1, 2, 37, 24, 40, GateKind::usual, false, Layout::tokens_first, 0, true};
  for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
    Problem whole(c), steps(c);
    whole.run(functions);
    std::vector<char> scratch(mlstm_scratch_bytes(whole.shape(), true) + 64);
    auto* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    for (int64_t t = 0; t < c.tokens; ++t) {
      MlstmForward call = steps.forward();
      call.shape.tokens = call.shape.chunk = 1;
      call.last = {steps.c0.data(), steps.n0.data(), steps.m0.data()};
      call.normaliser = call.row_sign = nullptr;
      for (HeadRows* x : {&call.q, &call.k, &call.v})
        x->data = static_cast<const float*>(x->data) + t * x->token;
      call.h.data = static_cast<float*>(call.h.data) + t * call.h.token;
      call.igate.data += t * call.igate.token, call.fgate.data += t * call.fgate.token;
      functions.forward(call, 0, 2, aligned);
    }
    for (int64_t item = 0; item < 2; ++item)
      expect_within(steps.h.item(item), whole.h.item(item), 2e-6 * largest(whole.h.item(item)), isa,
                    c.value_dim);
    expect_within(convert<double>(steps.c0), convert<double>(whole.c1),
                  1e-6 * largest(convert<double>(whole.c1)), isa + " C", c.value_dim);
  });
}

TEST(Mlstm, ReverseIsTheFlippedSequence) {
  Case c{2, 2, 45, 16, 24, GateKind::initial, false, Layout::tokens_first, 20};
  Problem forwards(c);
  c.reverse = true;
  Problem backwards(c);
  const std::pair<HeadTensor*, HeadTensor*> inputs[] = {
      {&backwards.q, &forwards.q},         {&backwards.k, &forwards.k},
      {&backwards.v, &forwards.v},         {&backwards.dh, &forwards.dh},
      {&backwards.igate, &forwards.igate}, {&backwards.fgate, &forwards.fgate}};
  for (const auto& [to, from] : inputs)
    for (int64_t item = 0; item < 4; ++item)
      for (int64_t t = 0; t < c.tokens; ++t)
        for (int64_t e = 0; e < from->width(); ++e) to->set(item, c.tokens - 1 - t, e, from->get(item, t, e));
  for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
    forwards.run(functions), backwards.run(functions);
    for (int64_t item = 0; item < 4; ++item) {
      const Results a = results(forwards, item), b = results(backwards, item);
      for (size_t i = 0; i < a.size(); ++i)
        expect_within(b[i].values, a[i].values, 0, text(isa, " ", a[i].name), a[i].width);
    }
  });
}

// bfloat16 is storage only: the results are those of the widened inputs, rounded once.
TEST(Mlstm, Bfloat16IsRoundedOnce) {
  for (const int64_t width : {int64_t{48}, int64_t{20}}) {
    Case c{1, 2, 50, width, width, GateKind::initial, false, Layout::tokens_first, 32};
    c.element = Element::bf16;
    Problem half(c);
    c.element = Element::f32;
    Problem single(c);
    for (auto [to, from] :
         {std::pair{&single.q, &half.q}, {&single.k, &half.k}, {&single.v, &half.v}, {&single.dh, &half.dh}})
      for (int64_t item = 0; item < 2; ++item)
        for (int64_t t = 0; t < c.tokens; ++t)
          for (int64_t e = 0; e < width; ++e) to->set(item, t, e, from->get(item, t, e));
    for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
      half.run(functions), single.run(functions);
      for (int64_t item = 0; item < 2; ++item) {
        const Results got = results(half, item), want = results(single, item);
        // The backward pass reads h as it was stored: its rounding passes into every gradient but dv.
        for (size_t i = 0; i < got.size(); ++i)
          expect_within(got[i].values, want[i].values,
                        (i == 0 || i == 4 ? 0.004 : 0.03) * largest(want[i].values),
                        text(isa, " ", got[i].name), got[i].width);
      }
    });
  }
}

TEST(Mlstm, ANanStaysInItsHead) {
  const Case c{2, 2, 40, 16, 16, GateKind::usual, false, Layout::tokens_first, 16};
  for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
    for (int where = 0; where < 3; ++where) {
      Problem clean(c), spoilt(c);
      (where == 0 ? spoilt.q : where == 1 ? spoilt.v : spoilt.fgate).set(1, 20, 0, std::nan(""));
      clean.run(functions), spoilt.run(functions);
      EXPECT_TRUE(std::isnan(spoilt.h.get(1, 20, 0))) << isa << " " << where;
      for (int64_t item : {0, 2, 3}) {
        const Results a = results(clean, item), b = results(spoilt, item);
        for (size_t i = 0; i < a.size(); ++i)
          expect_within(b[i].values, a[i].values, 0, text(isa, " ", a[i].name), a[i].width);
      }
    }
  });
}

TEST(Mlstm, NoTokensPassTheStateOnAndNoHeadsDoNothing) {
  Case c{1, 2, 0, 8, 12, GateKind::usual, false, Layout::tokens_first, 0, true};
  for_each_implementation(mlstm_table(), [&](const std::string& isa, const MlstmFunctions& functions) {
    Problem p(c);
    std::fill(p.c1.begin(), p.c1.end(), 0.0f);
    p.run(functions);
    EXPECT_EQ(p.c1, p.c0) << isa;
    EXPECT_EQ(p.n1, p.n0) << isa;
    EXPECT_EQ(p.m1, p.m0) << isa;
    EXPECT_EQ(p.dc0, p.dc1) << isa;
    EXPECT_EQ(p.dn0, p.dn1) << isa;
    EXPECT_EQ(p.dm0, p.dm1) << isa;
  });
  Problem none({0, 2, 5, 8, 8});
  mlstm_forward(none.forward());
  mlstm_backward(none.backward());
}

// Sixteen thousand tokens: numbers stay finite and as exact as over a short stretch, with usual and with
// extreme gates (where most chunks are cut short and the backward pass keeps its states in two levels).
TEST(Mlstm, LongSequences) {
  for (const GateKind kind : {GateKind::initial, GateKind::extreme}) {
    const Case c{1, 1, 16384, 8, 8, kind};
    Problem p(c);
    p.run(choose(mlstm_table()));
    // The last 64 tokens against the reference, which is given the state before them.
    Problem head_part(c);
    MlstmHead<double> head = head_of<double>(p, 0), tail = head;
    const int64_t cut = c.tokens - 64;
    const auto keep = [&](Doubles& x, int64_t width) { x.erase(x.begin(), x.begin() + cut * width); };
    // A recurrence in double, token by token, is the definition too.
    MlstmStateRef<double> state{Doubles(64, 0.0), Doubles(8, 0.0), -std::numeric_limits<double>::infinity()};
    for (int64_t t = 0; t < cut; ++t) {
      const double log_f = -std::log1p(std::exp(-head.fgate[t])),
                   m = std::max(log_f + state.m, head.igate[t]);
      const double a = std::exp(log_f + state.m - m), b = std::exp(head.igate[t] - m);
      for (int64_t d = 0; d < 8; ++d) {
        state.n[d] = a * state.n[d] + b * head.k[t * 8 + d];
        for (int64_t e = 0; e < 8; ++e)
          state.c[d * 8 + e] = a * state.c[d * 8 + e] + b * head.k[t * 8 + d] * head.v[t * 8 + e];
      }
      state.m = m;
    }
    tail.tokens = 64, tail.has_initial = true, tail.initial = state;
    keep(tail.q, 8), keep(tail.k, 8), keep(tail.v, 8), keep(tail.igate, 1), keep(tail.fgate, 1);
    Doubles dh = walked(p.dh, c, 0, 8);
    keep(dh, 8);
    const auto want = mlstm_head_forward(tail);
    const auto want_gradients = mlstm_head_backward(tail, dh, false, {});
    Doubles h = walked(p.h, c, 0, 8), dq = walked(p.dq, c, 0, 8), dv = walked(p.dv, c, 0, 8),
            df = walked(p.dfgate, c, 0, 1);
    keep(h, 8), keep(dq, 8), keep(dv, 8), keep(df, 1);
    expect_within(h, want.h, 2e-5 * largest(want.h), "h", 8);
    expect_within(dq, want_gradients.dq, 1e-4 * largest(want_gradients.dq), "dq", 8);
    expect_within(dv, want_gradients.dv, 2e-5 * largest(want_gradients.dv), "dv", 8);
    expect_within(df, want_gradients.dfgate, 1e-4 * largest(want_gradients.dfgate), "dfgate", 1);
    for (const Named& result : results(p, 0))
      for (double value : result.values) ASSERT_TRUE(std::isfinite(value)) << result.name;
  }
}

TEST(Mlstm, ThreadsDoNotChangeTheNumbers) {
  const Case c{3, 3, 70, 16, 16, GateKind::initial};
  Problem one(c), two(c);
  const int before = num_threads();
  set_num_threads(1);
  mlstm_forward(one.forward()), mlstm_backward(one.backward());
  set_num_threads(2);
  mlstm_forward(two.forward()), mlstm_backward(two.backward());
  set_num_threads(before);
  for (int64_t item = 0; item < 9; ++item) {
    const Results a = results(one, item), b = results(two, item);
    for (size_t i = 0; i < a.size(); ++i) expect_within(b[i].values, a[i].values, 0, a[i].name, a[i].width);
  }
}

TEST(Mlstm, RefusesWhatItCannotCompute) {
  Problem p({1, 1, 3, 4, 4});
  MlstmForward call = p.forward();
  call.shape.key_dim = 0;
  EXPECT_THROW(mlstm_forward(call), Error);
  call = p.forward();
  call.initial.c = p.c0.data();
  EXPECT_THROW(mlstm_forward(call), Error);
  call = p.forward();
  call.shape.tokens = -1;
  EXPECT_THROW(mlstm_forward(call), Error);
}
}  // namespace
}  // namespace tessera::kernels
