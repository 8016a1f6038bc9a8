#include "kernels/mlstm/mlstm.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "core/error.h"
#include "kernels/mlstm/mlstm_testing.h"

namespace tessera::kernels {
namespace {

using mlstm_testing::Case;
using mlstm_testing::convert;
using mlstm_testing::Doubles;
using mlstm_testing::expected;
using mlstm_testing::GateKind;
using mlstm_testing::head_of;
using mlstm_testing::Layout;
using mlstm_testing::Problem;
using mlstm_testing::Results;
using mlstm_testing::results;
using mlstm_testing::state_of;
using mlstm_testing::walked;
using testing::expect_within;
using testing::for_each_implementation;
using testing::largest;
using testing::largest_difference;
using testing::mlstm_cases;

// Returns the magnitude of the numbers that limit a result's rounding if the plain form is exact by luck: its
// own, or that of terms that cancel in it. `sizes` has the size of each result, in the order of Results.
double rounding_scale(const std::string& result, const Case& c, const std::vector<double>& sizes) {
  const auto index = [&](const char* name) {
    const char* names[] = {"h", "normaliser", "dq", "dk",  "dv",  "digate", "dfgate",
                           "C", "n",          "m",  "dC0", "dn0", "dm0"};
    return std::find(std::begin(names), std::end(names), std::string(name)) - std::begin(names);
  };
  // With one token, h is v up to a sign and eps: dq, dk and the gates are only rounding.
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

// The bound of flash-attention's tests: at most twice the error of the plain float form, both against double,
// as the largest over several problems of the same kind.
TEST(Mlstm, EveryImplementationIsAsExactAsThePlainForm) {
  constexpr int kSeeds = 3;
  for (const Case& c : mlstm_cases()) {
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

// Replaces every number by its magnitude, for upper bounds of all sums.
MlstmHead<double> sizes_of(MlstmHead<double> head) {
  for (Doubles* x : {&head.q, &head.k, &head.v, &head.initial.c, &head.initial.n})
    for (double& value : *x) value = std::abs(value);
  return head;
}

// The factors of each term have relative errors of up to 2^-8: q, k with its gate's weight, their product and
// v (or q and the state, which has two). That makes 2^-6 of the sum of the terms' magnitudes.
void expect_as_exact_as_roundings(const std::string& isa, const MlstmFunctions& pairs) {
  for (Case c : mlstm_cases())
    for (const Element element : {Element::f32, Element::bf16}) {
      c.element = element;
      Problem p(c);
      std::vector<float> scratch(mlstm_scratch_bytes(p.shape(), false) / 4 + 32, std::nanf(""));
      pairs.forward(p.forward(), 0, p.items(),
                    reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64));
      for (int64_t item = 0; item < p.items(); ++item) {
        const auto head = head_of<double>(p, item);
        const auto want = mlstm_head_forward(head), size = mlstm_head_forward(sizes_of(head));
        const Results got = results(p, item);
        const std::string where = text(isa, " ", c, " item ", item);
        for (size_t i = 0; i < want.h.size(); ++i) {
          const size_t t = i / static_cast<size_t>(c.value_dim);
          const double terms = (size.h[i] + std::abs(want.h[i])) * size.normaliser[t] / want.normaliser[t];
          ASSERT_NEAR(got[0].values[i], want.h[i], 0.016 * terms + std::ldexp(std::abs(want.h[i]), -8))
              << where << " h " << i;
        }
        if (!c.states) continue;
        for (size_t i = 0; i < want.last.c.size(); ++i)
          ASSERT_NEAR(got[7].values[i], want.last.c[i], 0.016 * size.last.c[i]) << where << " C " << i;
        for (size_t i = 0; i < want.last.n.size(); ++i)
          ASSERT_NEAR(got[8].values[i], want.last.n[i], 0.016 * size.last.n[i]) << where << " n " << i;
      }
    }
}
TEST(Mlstm, PairsAreAsExactAsTheirRoundings) {
  if (!mlstm_bf16_pairs()) GTEST_SKIP() << "no products of bfloat16 pairs here";
  for_each_implementation(mlstm_pairs_table(), expect_as_exact_as_roundings);
}

double root_mean_square_of_difference(const Doubles& a, const Doubles& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(1, a.size())));
}

// Compares with the change of the double gradients when the inputs are rounded to bfloat16. Allows three
// times that change, plus 2^-8 of the gradients, plus twice the cost of storing h and them in bfloat16: k
// with its gate's weight, the weights and dS are rounded as well. Single numbers may be off ten times as far.
void expect_gradients_as_exact_as_roundings(const std::string& isa, const MlstmFunctions& pairs) {
  constexpr size_t kKeys = 3;  // dk among the results
  const auto size_of = [](const Doubles& x) { return root_mean_square_of_difference(x, Doubles(x.size())); };
  for (Case c : mlstm_cases()) {
    Problem single(c);
    c.element = Element::bf16;
    Problem half(c);
    for (Problem* p : {&single, &half}) {
      Problem in_floats(p->c);
      p->run(pairs), in_floats.run(choose(mlstm_table()));
      for (int64_t item = 0; item < p->items(); ++item) {
        const Results exact = expected<double>(single, item), moved = expected<double>(half, item),
                      got = results(*p, item), want = expected<double>(*p, item),
                      floats = results(in_floats, item);
        for (size_t i = 0; i < want.size(); ++i) {
          const double error = root_mean_square_of_difference(got[i].values, want[i].values),
                       change = root_mean_square_of_difference(moved[i].values, exact[i].values);
          // The gates' gradients are sums of k dk, which may cancel.
          const bool sum = want[i].width == 1;
          const double size = std::max(size_of(want[i].values), sum ? size_of(want[kKeys].values) : 0);
          const double allowed = 3 * change + 0.004 * size + 1e-6;
          EXPECT_LE(error, allowed + 2 * root_mean_square_of_difference(floats[i].values, want[i].values))
              << isa << " " << p->c << " item " << item << " " << want[i].name;
          expect_within(got[i].values, want[i].values,
                        10 * allowed + 2 * largest_difference(floats[i].values, want[i].values),
                        text(isa, " ", p->c, " item ", item, " ", want[i].name), want[i].width);
        }
      }
    }
  }
}
TEST(Mlstm, GradientsByPairsAreAsExactAsTheirRoundings) {
  if (!mlstm_bf16_pairs()) GTEST_SKIP() << "no products of bfloat16 pairs here";
  for_each_implementation(mlstm_pairs_table(), expect_gradients_as_exact_as_roundings);
}

// Central differences of the reference in double check its gradients, the standard for all others.
TEST(Mlstm, TheReferenceHasTheGradientsOfItsForward) {
  using enum GateKind;
  for (const Case& c : {Case{1, 1, 6, 3, 4}, Case{1, 1, 5, 2, 3, usual, true, Layout::tokens_first, 0, true},
                        Case{1, 1, 7, 4, 2, low, false, Layout::tokens_first, 0, true},
                        Case{1, 1, 7, 4, 2, high}, Case{1, 1, 6, 3, 3, forgetting}}) {
    const Problem p(c);
    MlstmHead<double> head = head_of<double>(p, 0);
    head.eps = 1e-2;  // large, so that its small gradients are visible
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

// A case computed with the published code in float64; tests/data/kernels/README.md describes the file.
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
  // Returns the expected values i of an item, in walking order.
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
  std::vector<float> float_errors;  // errors of the published float code; negative: has none
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

}  // namespace
}  // namespace tessera::kernels
