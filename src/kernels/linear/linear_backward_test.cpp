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

// A guarded matrix off alignment, filled with normally distributed numbers.
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

// Runs body() with every instruction set of this machine and compares with the reference.
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

// One case has enough rows for several threads.
int64_t rows_of(int64_t columns, Element element, bool first) {
  return columns == 197 && element == Element::f32 && first ? 400 : 5;
}

enum class Form { gelu, gelu_tanh, gated };
constexpr Form kForms[] = {Form::gelu, Form::gelu_tanh, Form::gated};

TEST(LinearBackward, GradientsOfActivationsAreTheDefinitions) {
  for (const Form form : kForms)
    for (const Element element : {Element::f32, Element::bf16})
      for (const int64_t columns : kColumns) {
        const bool gated = form == Form::gated;
        const int64_t rows = rows_of(columns, element, gated);
        Filled before(element, rows, columns, 1, 3), gate(element, rows, columns, 2, 3),
            dy(element, rows, columns, 3), dbefore(element, rows, columns, 4),
            dgate(element, rows, columns, 5);
        const auto run = [&] {
          activation_backward({rows, columns, gated, before.in(), gate.in(), dy.in(), dbefore.out(),
                               dgate.out(), form == Form::gelu_tanh});
          std::vector<double> all;
          dbefore.append_to(all);
          dgate.append_to(all);
          return all;
        };
        expect_the_definition(run, element == Element::f32 ? 1e-6 : 1.0 / 256,
                              text("form ", static_cast<int>(form)), columns);
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

// The norms of samples equal those of each sample alone; 400 / 4 rows exceed a thread's share.
TEST(LinearBackward, GradientsOfNormsOfSamplesAreThoseOfEach) {
  for (const LinearImplementation& implementation : linear_implementations(Arithmetic::f32)) {
    const Isa before = active_isa();
    force_isa(implementation.isa);
    for (const int64_t samples : {1, 4, 20}) {
      constexpr int64_t columns = 197;
      const int64_t rows = samples * (samples == 4 ? 100 : 3), each = rows / samples;
      Filled x(Element::f32, rows, columns, 1, 2), dy(Element::bf16, rows, columns, 2),
          dx(Element::f32, rows, columns, 3), want(Element::f32, rows, columns, 3);
      const std::vector<float> weight = normal(columns * samples, 4, 1, 0.2);
      std::vector<float> dweight(weight.size(), NAN), dbias(dweight), dweight_of(dweight), dbias_of(dweight);
      NormBackward all{rows,          columns,  true,           1e-3f,        x.in(), dy.in(),
                       weight.data(), dx.out(), dweight.data(), dbias.data(), each};
      norm_backward(all);
      for (int64_t s = 0; s < samples; ++s) {
        const int64_t at = s * each * (columns + kGap);
        const auto from = [at](Rows rows_from) {
          const int64_t size = rows_from.element == Element::f32 ? 4 : 2;
          rows_from.data = static_cast<const char*>(rows_from.data) + at * size;
          return rows_from;
        };
        RowsOut to = want.out();
        to.data = static_cast<float*>(to.data) + at;
        norm_backward({each, columns, true, 1e-3f, from(x.in()), from(dy.in()), weight.data() + s * columns,
                       to, dweight_of.data() + s * columns, dbias_of.data() + s * columns});
      }
      expect_within({dweight.begin(), dweight.end()}, {dweight_of.begin(), dweight_of.end()}, 2e-4,
                    implementation.name, columns);
      expect_within({dbias.begin(), dbias.end()}, {dbias_of.begin(), dbias_of.end()}, 1e-4,
                    implementation.name, columns);
      std::vector<double> got, each_got;
      dx.append_to(got), want.append_to(each_got);
      EXPECT_EQ(got, each_got) << implementation.name;
      all.sample_rows = rows + 1;
      EXPECT_THROW(norm_backward(all), Error);
    }
    force_isa(before);
  }
}

TEST(LinearBackward, GradientsOfScalesOfSamplesAreTheDefinitions) {
  for (const Element element : {Element::f32, Element::bf16})
    for (const int64_t columns : kColumns)
      for (const int64_t samples : {1, 5}) {
        const int64_t rows = samples * (columns == 197 ? 80 : 3);
        Filled before(element, rows, columns, 1), dy(element, rows, columns, 2),
            dbefore(element, rows, columns, 3);
        const std::vector<float> scale = normal(columns * samples, 4);
        const auto run = [&] {
          std::vector<float> dscale(scale.size(), NAN);
          sample_scale_backward({rows, columns, rows / samples, before.in(), dy.in(), scale.data(),
                                 dbefore.out(), dscale.data()});
          std::vector<double> all(dscale.begin(), dscale.end());
          dbefore.append_to(all);
          return all;
        };
        expect_the_definition(run, element == Element::f32 ? 2e-6 : 1.0 / 256, text(samples, " samples"),
                              columns);
      }
}

// That definition checked by hand: two samples of two rows, one column.
TEST(LinearBackward, AScaleOfASampleGetsTheSumOverItsRows) {
  const std::vector<float> before = {1, 2, 3, 4}, dy = {5, 6, 7, 8}, scale = {10, 100};
  for (const LinearImplementation& implementation : linear_implementations(Arithmetic::f32)) {
    const Isa held = active_isa();
    force_isa(implementation.isa);
    std::vector<float> dbefore(4), dscale(2, NAN);
    sample_scale_backward({4,
                           1,
                           2,
                           {before.data(), Element::f32, 1},
                           {dy.data(), Element::f32, 1},
                           scale.data(),
                           {dbefore.data(), Element::f32, 1},
                           dscale.data()});
    EXPECT_EQ(dbefore, (std::vector<float>{50, 60, 700, 800}));
    EXPECT_EQ(dscale, (std::vector<float>{17, 53}));
    force_isa(held);
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

// The same for the activations, against differences of their formulas in double.
TEST(LinearBackward, TheDefinitionIsTheSlopeOfTheActivation) {
  const Isa held = active_isa();
  force_isa(Isa::reference);
  constexpr int64_t columns = 61;
  const std::vector<float> x = normal(columns, 1, 0, 3), gate = normal(columns, 2, 0, 3),
                           dy = normal(columns, 3);
  const auto activated = [](Form form, double v, double g) {
    if (form == Form::gated) return v * g / (1 + std::exp(-g));
    const double root = std::sqrt(2 / std::acos(-1.0));
    return v * 0.5 *
           (1 + (form == Form::gelu ? std::erf(v / std::sqrt(2.0))
                                    : std::tanh(root * (v + 0.044715 * v * v * v))));
  };
  for (const Form form : kForms) {
    const bool gated = form == Form::gated;
    std::vector<float> dx(columns), dgate(columns);
    const auto in = [](const std::vector<float>& row) { return Rows{row.data(), Element::f32, columns}; };
    activation_backward({1,
                         columns,
                         gated,
                         in(x),
                         in(gate),
                         in(dy),
                         {dx.data(), Element::f32, columns},
                         {dgate.data(), Element::f32, columns},
                         form == Form::gelu_tanh});
    for (int64_t c = 0; c < columns; ++c) {
      constexpr double h = 1e-5;
      const double v = x[c], g = gate[c];
      const auto slope = [&](double along_v, double along_g) {
        return dy[c] *
               (activated(form, v + along_v, g + along_g) - activated(form, v - along_v, g - along_g)) /
               (2 * h);
      };
      EXPECT_NEAR(dx[c], slope(h, 0), 1e-6) << static_cast<int>(form) << " " << v << " " << g;
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
      activation_backward({1, columns, false, x.in(), {}, dy.in(), dx.out(), {}, true});
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
