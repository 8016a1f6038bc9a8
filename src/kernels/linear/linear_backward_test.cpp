#include "kernels/linear/linear_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/linear/linear.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::Guarded;
using testing::normal;

constexpr int64_t kGap = 3;  // numbers between rows

// A guarded matrix off alignment, filled with numbers of a normal distribution.
class Filled : public Guarded {
 public:
  Filled(Element element, int64_t rows, int64_t columns, uint64_t seed, double deviation = 1)
      : Guarded(element, rows * (columns + kGap), 1), rows_(rows), columns_(columns) {
    const auto values = normal(count(), seed, 0.3, deviation);
    for (int64_t i = 0; i < count(); ++i) set(i, values[i]);
  }
  Rows in() { return {data(), element(), columns_ + kGap}; }
  RowsOut out() { return {data(), element(), columns_ + kGap}; }
  void append_to(std::vector<double>& all) const {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < columns_; ++c) all.push_back(get(r * (columns_ + kGap) + c));
  }

 private:
  int64_t rows_, columns_;
};

// body() under every instruction set that this machine has, against the reference's.
template <class Body>
void expect_the_definition(const Body& body, double tolerance, const std::string& what, int64_t width) {
  const Isa before = active_isa();
  force_isa(Isa::reference);
  const std::vector<double> want = body();
  for (const LinearImplementation& implementation : linear_implementations(Arithmetic::f32)) {
    force_isa(implementation.isa);
    expect_within(body(), want, tolerance * (1 + testing::largest(want)),
                  text(what, ", ", implementation.name), width);
  }
  force_isa(before);
}

constexpr int64_t kColumns[] = {1, 3, 15, 16, 17, 33, 96, 197};

// Once so many that threads share them.
int64_t rows_of(int64_t columns, Element element, bool first) {
  return columns == 197 && element == Element::f32 && first ? 400 : 5;
}

TEST(LinearBackward, GradientsOfActivationsAreTheDefinitions) {
  for (const bool gated : {false, true})
    for (const Element element : {Element::f32, Element::bf16})
      for (const int64_t columns : kColumns) {
        const int64_t rows = rows_of(columns, element, gated);
        Filled before(element, rows, columns, 1, 3), gate(element, rows, columns, 2, 3),
            dy(element, rows, columns, 3), dbefore(element, rows, columns, 4),
            dgate(element, rows, columns, 5);
        const auto run = [&] {
          activation_backward(
              {rows, columns, gated, before.in(), gate.in(), dy.in(), dbefore.out(), dgate.out()});
          std::vector<double> all;
          dbefore.append_to(all);
          dgate.append_to(all);
          return all;
        };
        expect_the_definition(run, element == Element::f32 ? 1e-6 : 1.0 / 256, text("gated ", gated),
                              columns);
      }
}

TEST(LinearBackward, GradientsOfNormsAreTheDefinitions) {
  for (const bool centred : {true, false})
    for (const Element element : {Element::f32, Element::bf16})
      for (const int64_t columns : kColumns) {
        const int64_t rows = rows_of(columns, element, centred);
        Filled x(element, rows, columns, 1, 2), dy(element, rows, columns, 2), dx(element, rows, columns, 3);
        const std::vector<float> weight = normal(columns, 4, 1, 0.2);
        const auto run = [&] {
          std::vector<float> dweight(columns, NAN), dbias(columns, NAN);
          norm_backward({rows, columns, centred, 1e-3f, x.in(), dy.in(), weight.data(), dx.out(),
                         dweight.data(), dbias.data()});
          std::vector<double> all(dweight.begin(), dweight.end());
          all.insert(all.end(), dbias.begin(), dbias.end());
          dx.append_to(all);
          return all;
        };
        expect_the_definition(run, element == Element::f32 ? 2e-6 : 1.0 / 256, text("centred ", centred),
                              columns);
      }
}

// The definition itself, against differences of norm_forward's.
TEST(LinearBackward, TheDefinitionIsTheSlopeOfTheNorm) {
  const Isa before = active_isa();
  force_isa(Isa::reference);
  for (const bool centred : {true, false}) {
    constexpr int64_t columns = 9;
    std::vector<float> x = normal(columns, 1, 1, 2), weight = normal(columns, 2, 1, 0.3), dx(columns),
                       dw(columns), y(columns);
    const std::vector<float> dy = normal(columns, 3);
    const auto loss = [&] {
      norm_forward({1,
                    columns,
                    {x.data(), Element::f32, columns},
                    {weight.data(), nullptr, 1e-3f, centred},
                    {y.data(), Element::f32, columns}});
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += static_cast<double>(dy[c]) * y[c];
      return sum;
    };
    norm_backward({1,
                   columns,
                   centred,
                   1e-3f,
                   {x.data(), Element::f32, columns},
                   {dy.data(), Element::f32, columns},
                   weight.data(),
                   {dx.data(), Element::f32, columns},
                   dw.data(),
                   nullptr});
    const auto slope = [&](float& of) {
      const float held = of, step = 1e-2f;
      of = held + step;
      const double above = loss();
      of = held - step;
      const double below = loss();
      of = held;
      return (above - below) / (2 * static_cast<double>(step));
    };
    for (int64_t c = 0; c < columns; ++c) {
      EXPECT_NEAR(dx[c], slope(x[c]), 2e-4) << c;
      EXPECT_NEAR(dw[c], slope(weight[c]), 2e-4) << c;
    }
  }
  force_isa(before);
}

// And of the activations, against differences of their formulas in double.
TEST(LinearBackward, TheDefinitionIsTheSlopeOfTheActivation) {
  const Isa held = active_isa();
  force_isa(Isa::reference);
  constexpr int64_t columns = 61;
  const std::vector<float> x = normal(columns, 1, 0, 3), gate = normal(columns, 2, 0, 3),
                           dy = normal(columns, 3);
  const auto activated = [](bool gated, double v, double g) {
    return gated ? v * g / (1 + std::exp(-g)) : v * 0.5 * (1 + std::erf(v / std::sqrt(2.0)));
  };
  for (const bool gated : {false, true}) {
    std::vector<float> dx(columns), dgate(columns);
    const auto in = [](const std::vector<float>& row) { return Rows{row.data(), Element::f32, columns}; };
    activation_backward({1,
                         columns,
                         gated,
                         in(x),
                         in(gate),
                         in(dy),
                         {dx.data(), Element::f32, columns},
                         {dgate.data(), Element::f32, columns}});
    for (int64_t c = 0; c < columns; ++c) {
      constexpr double h = 1e-5;
      const double v = x[c], g = gate[c];
      const auto slope = [&](double along_v, double along_g) {
        return dy[c] *
               (activated(gated, v + along_v, g + along_g) - activated(gated, v - along_v, g - along_g)) /
               (2 * h);
      };
      EXPECT_NEAR(dx[c], slope(h, 0), 1e-6) << gated << " " << v << " " << g;
      if (gated) {
        EXPECT_NEAR(dgate[c], slope(0, h), 2e-6) << v << " " << g;
      }
    }
  }
  force_isa(held);
}

TEST(LinearBackward, ANaNStaysInItsRowAndExtremesAreFinite) {
  for (const LinearImplementation& implementation : linear_implementations(Arithmetic::f32)) {
    const Isa before = active_isa();
    force_isa(implementation.isa);
    constexpr int64_t rows = 3, columns = 21;
    Filled x(Element::f32, rows, columns, 1), dy(Element::f32, rows, columns, 2),
        dx(Element::f32, rows, columns, 3);
    x.set((columns + kGap) + 4, std::numeric_limits<double>::quiet_NaN());
    norm_backward({rows, columns, true, 1e-6f, x.in(), dy.in(), nullptr, dx.out()});
    for (int64_t c = 0; c < columns; ++c) {
      EXPECT_TRUE(std::isfinite(dx.get(c)) && std::isfinite(dx.get(2 * (columns + kGap) + c)));
      EXPECT_TRUE(std::isnan(dx.get(columns + kGap + c))) << implementation.name;
    }
    for (const double far : {-1e4, -100.0, -20.0, 20.0, 100.0, 1e4}) {
      for (int64_t c = 0; c < columns; ++c) x.set(c, far);
      activation_backward({1, columns, true, dy.in(), x.in(), dy.in(), dx.out(), dx.out()});
      for (int64_t c = 0; c < columns; ++c) EXPECT_TRUE(std::isfinite(dx.get(c))) << implementation.name;
      activation_backward({1, columns, false, x.in(), {}, dy.in(), dx.out(), {}});
      for (int64_t c = 0; c < columns; ++c)
        EXPECT_NEAR(dx.get(c), far > 0 ? dy.get(c) : 0, 1e-6) << implementation.name << ", " << far;
    }
    force_isa(before);
  }
}

TEST(LinearBackward, NoRowsAreNoWorkAndWhatDoesNotFitIsRefused) {
  std::vector<float> dweight(4, 1), dbias(4, 1), x(8);
  const Rows in{x.data(), Element::f32, 4};
  const RowsOut out{x.data(), Element::f32, 4};
  norm_backward({0, 4, true, 1e-6f, {}, {}, nullptr, {}, dweight.data(), dbias.data()});
  EXPECT_EQ(dweight, std::vector<float>(4));
  EXPECT_EQ(dbias, std::vector<float>(4));
  ActivationBackward nothing;
  nothing.columns = 4;
  activation_backward(nothing);
  EXPECT_THROW(norm_backward({2, 5, true, 1e-6f, in, in, nullptr, out}), Error);
  EXPECT_THROW(norm_backward({2, 4, true, 1e-6f, in, {}, nullptr, out}), Error);
  EXPECT_THROW(activation_backward({2, 4, true, in, {}, in, out, out}), Error);
}

}  // namespace
}  // namespace tessera::kernels
