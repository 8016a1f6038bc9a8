// Compares every instruction set with the defining sum, at sizes around tiles, panels and parts.
#include "kernels/winograd/winograd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::Guarded;
using testing::normal;

struct Case {
  int64_t batch, rows, columns, in, out;
  Element x = Element::f32, y = Element::f32;
  bool residual = false, relu = false, bias = true;
};

struct Problem {
  explicit Problem(const Case& c)
      : with(c),
        x(c.x, c.batch * c.rows * c.columns * c.in, 1),
        y(c.y, c.batch * c.rows * c.columns * c.out, 1),
        residual(c.y, y.count(), 3),
        weight(normal(9 * c.in * c.out, 2)),
        bias(normal(c.out, 3)) {
    const auto cells = normal(x.count(), 1), added = normal(y.count(), 4);
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, cells[i]);
    for (int64_t i = 0; i < y.count(); ++i) residual.set(i, added[i]);
  }
  WinogradGrid grid() const { return {with.batch, with.rows, with.columns, with.in, with.out}; }
  int64_t cell(int64_t b, int64_t r, int64_t c) const { return (b * with.rows + r) * with.columns + c; }
  std::vector<double> tensor(const Guarded& from) const {
    std::vector<double> all;
    for (int64_t i = 0; i < from.count(); ++i) all.push_back(from.get(i));
    return all;
  }
  // Calls body(output, input, weight) for every multiplication of the definition, by indices.
  template <class Body>
  void each_product(const Body& body) const {
    for (int64_t b = 0; b < with.batch; ++b)
      for (int64_t r = 0; r < with.rows; ++r)
        for (int64_t c = 0; c < with.columns; ++c)
          for (int64_t i = 0; i < 9; ++i) {
            const int64_t row = r + i / 3 - 1, column = c + i % 3 - 1;
            if (row < 0 || row >= with.rows || column < 0 || column >= with.columns) continue;
            for (int64_t o = 0; o < with.out; ++o)
              for (int64_t k = 0; k < with.in; ++k)
                body(cell(b, r, c) * with.out + o, cell(b, row, column) * with.in + k,
                     (o * with.in + k) * 9 + i);
          }
  }
  std::vector<double> forward(Isa isa) {
    force_isa(isa);
    std::vector<float> packed(static_cast<size_t>(winograd_packed_count(with.in, with.out)), NAN);
    winograd_pack({weight.data(), with.in, with.out, with.in * 9, 9, false, packed.data()});
    for (int64_t i = 0; i < y.count(); ++i) y.set(i, 1e30);
    winograd_forward({grid(), x.data(), with.x, packed.data(), with.bias ? bias.data() : nullptr,
                      with.residual ? residual.data() : nullptr, with.y, with.relu, y.data(), with.y});
    return tensor(y);
  }
  std::vector<double> expected_forward() const {
    std::vector<double> sums(static_cast<size_t>(y.count()));
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = with.bias ? bias[i % static_cast<size_t>(with.out)] : 0;
    each_product([&](int64_t to, int64_t from, int64_t w) { sums[to] += x.get(from) * weight[w]; });
    for (size_t i = 0; i < sums.size(); ++i) {
      if (with.residual) sums[i] += residual.get(static_cast<int64_t>(i));
      if (with.relu && sums[i] < 0) sums[i] = 0;
    }
    return sums;
  }
  Case with;
  Guarded x, y, residual;
  std::vector<float> weight, bias;
};

std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : {Isa::reference, Isa::portable, Isa::avx2, Isa::avx512})
    if (isa <= machine().best) sets.push_back(isa);
  return sets;
}

const std::vector<Case>& cases() {
  constexpr Element f = Element::f32, h = Element::bf16;
  static const std::vector<Case> all = {
      {1, 1, 1, 1, 1},
      {1, 4, 4, 16, 48},
      {2, 5, 3, 7, 5},
      {1, 9, 6, 17, 49, f, f, true, true},
      {3, 3, 8, 33, 20, f, f, false, true, false},
      {1, 6, 7, 15, 50, h, h, true, true},
      {2, 4, 5, 16, 15, f, h},
      {1, 2, 9, 31, 97, h, f, true, false},
      {1, 5, 5, 258, 30},
      {0, 5, 5, 3, 4},
  };
  return all;
}

std::string name(const Case& c, Isa isa) {
  return text(name_of(isa), " ", c.batch, " x ", c.rows, " x ", c.columns, ", ", c.in, " to ", c.out);
}
// A hundred float roundings, growing like a sum of 9 in numbers; in bfloat16 storage, half a unit of 8 bits
// more.
double tolerance(const Case& c, const std::vector<double>& want, Element stored) {
  return 1e-5 * std::sqrt(9.0 * static_cast<double>(c.in)) +
         (stored == Element::bf16 ? testing::largest(want) / 256 : 0);
}

class Winograd : public ::testing::Test {
 protected:
  ~Winograd() override { force_isa(before_); }

 private:
  Isa before_ = active_isa();
};

TEST_F(Winograd, ForwardIsTheDefinition) {
  for (const Case& c : cases()) {
    Problem problem(c);
    const std::vector<double> want = problem.expected_forward();
    for (const Isa isa : instruction_sets())
      expect_within(problem.forward(isa), want, tolerance(c, want, c.y), name(c, isa), c.out);
  }
}

TEST_F(Winograd, RotatedWeightsGiveTheGradientOfTheInput) {
  for (const Case& c : cases()) {
    Problem problem(c);
    Guarded dx(c.x, problem.x.count(), 1);
    std::vector<double> want(static_cast<size_t>(dx.count()));
    problem.each_product([&](int64_t to, int64_t from, int64_t w) {
      want[from] += problem.residual.get(to) * problem.weight[w];
    });
    for (const Isa isa : instruction_sets()) {
      force_isa(isa);
      std::vector<float> packed(static_cast<size_t>(winograd_packed_count(c.out, c.in)));
      winograd_pack({problem.weight.data(), c.out, c.in, 9, c.in * 9, true, packed.data()});
      winograd_forward({.grid = {c.batch, c.rows, c.columns, c.out, c.in},
                        .x = problem.residual.data(),
                        .x_element = c.y,
                        .packed = packed.data(),
                        .y = dx.data(),
                        .y_element = c.x});
      Case exchanged = c;
      exchanged.in = c.out;
      expect_within(problem.tensor(dx), want, tolerance(exchanged, want, c.x), name(c, isa), c.in);
    }
  }
}

TEST_F(Winograd, GradientOfTheWeights) {
  for (const Case& c : cases()) {
    Problem problem(c);
    std::vector<double> want(problem.weight.size());
    problem.each_product([&](int64_t to, int64_t from, int64_t w) {
      want[w] += problem.residual.get(to) * problem.x.get(from);
    });
    const double cells = static_cast<double>(c.batch * c.rows * c.columns);
    for (const Isa isa : instruction_sets()) {
      force_isa(isa);
      Guarded gradient(Element::f32, 9 * c.in * c.out, 1);
      winograd_gradients({problem.grid(), problem.x.data(), c.x, problem.residual.data(), c.y,
                          static_cast<float*>(gradient.data())});
      expect_within(problem.tensor(gradient), want, 2e-5 * std::sqrt(cells), name(c, isa), 9);
    }
  }
}

TEST_F(Winograd, SumsOverSeveralBlocksAndParts) {
  // 1,200 tiles of 300 channels exceed a block.
  const Case c{3, 80, 80, 300, 300};
  Problem problem(c);
  const std::vector<double> got = problem.forward(active_isa());
  std::vector<float> gradient(problem.weight.size());
  winograd_gradients({problem.grid(), problem.x.data(), c.x, problem.residual.data(), c.y, gradient.data()});
  for (const int64_t r : {0, 13, 79})
    for (const int64_t o : {0, 47, 299}) {
      const int64_t b = r % 3, column = 79 - r;
      double want = problem.bias[o];
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t row = r + i / 3 - 1, at = column + i % 3 - 1;
        if (row < 0 || row >= c.rows || at < 0 || at >= c.columns) continue;
        for (int64_t k = 0; k < c.in; ++k)
          want += problem.x.get(problem.cell(b, row, at) * c.in + k) * problem.weight[(o * c.in + k) * 9 + i];
      }
      EXPECT_NEAR(got[problem.cell(b, r, column) * c.out + o], want, tolerance(c, {}, c.y));
      double slope = 0;  // gradient of the weight in the middle
      for (int64_t cell = 0; cell < c.batch * c.rows * c.columns; ++cell)
        slope += problem.x.get(cell * c.in + 299 - o) * problem.residual.get(cell * c.out + o);
      EXPECT_NEAR(gradient[(o * c.in + 299 - o) * 9 + 4], slope, 2e-5 * std::sqrt(19200.0));
    }
}

TEST_F(Winograd, ThreadsAndBatchesChangeNothing) {
  const Case c{3, 21, 30, 70, 60};
  Problem problem(c);
  const Isa isa = active_isa();
  const auto gradients = [&] {
    std::vector<float> gradient(problem.weight.size());
    winograd_gradients(
        {problem.grid(), problem.x.data(), c.x, problem.residual.data(), c.y, gradient.data()});
    return gradient;
  };
  const int threads = num_threads();
  set_num_threads(2);
  const std::vector<double> shared = problem.forward(isa);
  const std::vector<float> shared_gradient = gradients();
  set_num_threads(1);
  EXPECT_EQ(problem.forward(isa), shared);
  EXPECT_EQ(gradients(), shared_gradient);
  problem.with.batch = 1;
  const std::vector<double> alone = problem.forward(isa);
  const auto size = static_cast<int64_t>(c.rows * c.columns * c.out);
  EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + size, shared.begin()));
  set_num_threads(threads);
}

TEST_F(Winograd, RefusesMissingTensors) {
  Problem problem({1, 2, 2, 4, 4});
  EXPECT_THROW(winograd_forward({.grid = problem.grid(), .x = problem.x.data(), .y = problem.y.data()}),
               Error);
  EXPECT_THROW(winograd_gradients({.grid = {1, 0, 2, 4, 4}}), Error);
}

}  // namespace
}  // namespace tessera::kernels
