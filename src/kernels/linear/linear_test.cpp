#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/linear/linear_cases.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::Guarded;
using testing::linear_cases;
using testing::LinearCase;
using testing::normal;
using Problem = testing::LinearProblem;

constexpr Arithmetic kArithmetics[] = {Arithmetic::f32, Arithmetic::bf16, Arithmetic::int8};

// Sums of products of unit variance times x of about 2: the rounding of float sums grows with the root of
// their length. Results in bfloat16 are off by half a unit of 8 bits. A float norm may flip the rounding of a
// few numbers of x to bfloat16 or int8: each costs a step of x times a weight.
double tolerance(const Problem& p, Arithmetic arithmetic, const std::vector<double>& want) {
  const double in = static_cast<double>(p.with.in), most = std::max(1.0, testing::largest(want));
  double t = 8 * 6e-8 * std::sqrt(in) * 4 + 1e-6 * most;
  if (p.with.y == Element::bf16) t += most / 256;
  if (p.with.activation == Activation::gelu && arithmetic == Arithmetic::int8)
    t += 2 * 8e-5;  // gelu_coarse, times the scale after it
  if (p.with.activation == Activation::gelu_tanh) t += 2 * 7e-5 * most;  // its coarse form too
  if (p.with.norm && arithmetic != Arithmetic::f32) {
    const double step = arithmetic == Arithmetic::bf16 ? 8.0 / 256 : 8.0 / 127;
    t += 4 * step * 4 / std::sqrt(in) * most;
  }
  return t;
}

bool is_large(const LinearCase& with) { return with.rows * with.in * with.out > 200000; }

void expect_the_definition(bool large) {
  for (const LinearCase& with : linear_cases()) {
    if (is_large(with) != large) continue;
    for (const Arithmetic arithmetic : kArithmetics) {
      const auto all = linear_implementations(arithmetic);
      Problem p(with);
      const std::vector<double> want = p.run(all.back());
      for (const LinearImplementation& implementation : all)
        expect_within(
            p.run(implementation), want, tolerance(p, arithmetic, want),
            text(with.what, ", ", implementation.name, ", arithmetic ", static_cast<int>(arithmetic)),
            with.out);
    }
  }
}
TEST(Linear, EveryImplementationComputesTheDefinition) { expect_the_definition(false); }
TEST(Linear, LargeLayersAreAsExactAsSmallOnes) { expect_the_definition(true); }

// bfloat16 rows are read in place if they are whole aligned words, else copied: both give the same result.
TEST(Linear, RowsInBfloat16AreTheSameWhereTheyLieAndCopied) {
  for (const int64_t in : {40, 41})
    for (const int64_t gap : {0, 1, 2})
      for (const int64_t rows : {1, 21}) {
        LinearCase with{"", rows, in, 50};
        with.x = Element::bf16, with.gap = gap;
        Problem aligned(with, 0), shifted(with, 1);
        for (const LinearImplementation& implementation : linear_implementations(Arithmetic::bf16)) {
          const auto want = aligned.run(linear_implementations(Arithmetic::bf16).back());
          const std::string where = text(implementation.name, " ", rows, " rows of ", in, ", gap ", gap);
          expect_within(aligned.run(implementation), want, tolerance(aligned, Arithmetic::bf16, want), where,
                        50);
          expect_within(shifted.run(implementation), aligned.run(implementation), 0, where, 50);
          if (rows == 1) continue;
          Problem spoilt(with, 0);
          spoilt.x.set(7 * (in + gap) + 3, std::nan(""));
          const auto after = spoilt.run(implementation), before = aligned.run(implementation);
          for (int64_t i = 0; i < 50 * rows; ++i)
            EXPECT_TRUE(i / 50 == 7 ? !std::isfinite(after[i]) : after[i] == before[i]) << where << " " << i;
        }
      }
}

// The definitions of the arithmetics against plain float64: int8 has steps of 1/127 of the largest.
TEST(Linear, ArithmeticsDifferByTheirRoundings) {
  const LinearCase with{"", 20, 128, 40};
  Problem p(with);
  const std::vector<double> exact = p.run(linear_implementations(Arithmetic::f32).back());
  const double size = testing::largest(exact);
  const auto error = [&](Arithmetic arithmetic) {
    return testing::largest_difference(p.run(choose_linear(arithmetic)), exact) / size;
  };
  EXPECT_LT(error(Arithmetic::f32), 1e-6);
  EXPECT_LT(error(Arithmetic::bf16), 1.0 / 256);
  EXPECT_GT(error(Arithmetic::bf16), 1e-5);
  EXPECT_LT(error(Arithmetic::int8), 0.03);
  EXPECT_GT(error(Arithmetic::int8), 1e-4);
}

// Calls look(x, y, coarse arithmetic or not, implementation) for numbers exact in bfloat16: one input, one
// output and a weight of 1, so y is the activation alone.
template <class Look>
void look_at_activation(Activation activation, const Look& look) {
  std::vector<float> x = {-8192, -96, 96, 8192};
  for (int i = -192; i <= 192; ++i) x.push_back(static_cast<float>(i) / 16);
  const auto rows = static_cast<int64_t>(x.size());
  for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16})
    for (const LinearImplementation& implementation : linear_implementations(arithmetic)) {
      const bool coarse = arithmetic == Arithmetic::bf16;
      Problem p({"", rows, 1, 1, activation, false, false, false, 0, Element::f32,
                 coarse ? Element::bf16 : Element::f32});
      p.weight[0] = 1;
      for (int64_t r = 0; r < rows; ++r) p.x.set(r, x[r]);
      const std::vector<double> y = p.run(implementation);
      for (int64_t r = 0; r < rows; ++r) look(x[r], y[r], coarse, implementation.name);
    }
}

TEST(Linear, GeluIsExactFromEndToEnd) {
  look_at_activation(Activation::gelu, [](double x, double y, bool coarse, const char* name) {
    const double exact = x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    EXPECT_NEAR(y, exact, coarse ? 8e-5 + std::abs(exact) / 256 : 6e-8 + 1.2e-7 * std::abs(x))
        << name << ", " << x;
  });
}

TEST(Linear, GeluWithTanhIsExactFromEndToEnd) {
  look_at_activation(Activation::gelu_tanh, [](double x, double y, bool coarse, const char* name) {
    const double exact = x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(y, exact, 1e-14 + std::abs(exact) * (coarse ? 1.0 / 256 + 7e-5 : 1e-5)) << name << ", " << x;
  });
}

// Returns the layer's result, and the kept values before the activation.
std::vector<double> with_what_is_kept(Problem& p, const LinearImplementation& implementation, Element kept) {
  const int64_t row = p.with.out + 3, rows = p.with.rows;
  Guarded before(kept, rows * row, 1), gate_before(kept, rows * row, 1);
  for (Guarded* to : {&before, &gate_before})
    for (int64_t i = 0; i < to->count(); ++i) to->set(i, 0);
  LinearForward call = p.call();
  call.before = {before.data(), kept, row};
  if (p.with.activation == Activation::silu_gate) call.gate_before = {gate_before.data(), kept, row};
  linear_forward(PackedLinear(p.layer(), implementation), call);
  std::vector<double> all = p.results();
  for (const Guarded* from : {&before, &gate_before})
    for (int64_t i = 0; i < from->count(); ++i) all.push_back(from->get(i));
  return all;
}

TEST(Linear, WhatTrainingKeepsIsTheOutputWithoutActivation) {
  using enum Activation;
  for (const Activation activation : {gelu, silu_gate})
    for (const Element kept : {Element::f32, Element::bf16})
      for (const int64_t rows : {11, 75})
        for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16}) {
          Problem p({"", rows, 34, 61, activation});
          const auto implementations = linear_implementations(arithmetic);
          const std::vector<double> want = with_what_is_kept(p, implementations.back(), kept);
          EXPECT_GT(testing::largest({want.end() - 64, want.end()}), activation == silu_gate ? 0.1 : -1);
          for (const LinearImplementation& implementation : implementations)
            expect_within(with_what_is_kept(p, implementation, kept), want,
                          (kept == Element::f32 ? 1e-5 : 1.0 / 128) * testing::largest(want),
                          text(implementation.name, " ", rows, " rows"), 61);
        }
}

// Includes tiles of rows that are finished while the next one is summed.
TEST(Linear, ResidualMayBeTheOutput) {
  for (const Arithmetic arithmetic : kArithmetics)
    for (const LinearImplementation& implementation : linear_implementations(arithmetic))
      for (const Element element : {Element::f32, Element::bf16}) {
        Problem p({"", 75, 40, 110, Activation::none, true, true, true, 0, element, element});
        const std::vector<double> want = p.run(implementation);
        for (int64_t i = 0; i < p.y.count(); ++i) p.y.set(i, p.residual.get(i));
        LinearForward call = p.call();
        call.residual = {call.y.data, call.y.element, call.y.row};
        linear_forward(PackedLinear(p.layer(), implementation), call);
        EXPECT_EQ(p.results(), want) << implementation.name;
      }
}

TEST(Linear, ATransposedWeightIsPackedLikeAStraightOne) {
  Problem p({"", 9, 31, 45});
  std::vector<float> transposed(p.weight.size());
  for (int64_t o = 0; o < 45; ++o)
    for (int64_t k = 0; k < 31; ++k) transposed[k * 45 + o] = p.weight[o * 31 + k];
  for (const Arithmetic arithmetic : kArithmetics) {
    for (const LinearImplementation& implementation : linear_implementations(arithmetic)) {
      const std::vector<double> want = p.run(implementation);
      LinearLayer layer = p.layer();
      layer.weight = {transposed.data(), Element::f32, 1, 45};
      linear_forward(PackedLinear(layer, implementation), p.call());
      EXPECT_EQ(p.results(), want) << implementation.name;
    }
  }
}

// 170 rows are 21 tiles and two rows, or five tiles of tile registers and ten rows.
TEST(Linear, ARowDoesNotDependOnTheOthersNorOnThreads) {
  const int before = num_threads();
  for (const Arithmetic arithmetic : kArithmetics)
    for (const LinearImplementation& implementation : linear_implementations(arithmetic)) {
      Problem p({"", 170, 90, 101, Activation::gelu, true, false, false, 1});
      const PackedLinear packed(p.layer(), implementation);
      set_num_threads(1);
      linear_forward(packed, p.call());
      const std::vector<double> want = p.results();
      LinearForward one = p.call();
      one.rows = 1;
      linear_forward(packed, one);
      EXPECT_EQ(p.results(), want);
      for (const int threads : {2, 3, 5}) {
        for (int64_t i = 0; i < p.y.count(); ++i) p.y.set(i, std::nan(""));
        set_num_threads(threads);
        linear_forward(packed, p.call());
        EXPECT_EQ(p.results(), want) << implementation.name << ", " << threads << " threads";
      }
    }
  set_num_threads(before);
}

TEST(Linear, ANaNStaysInItsRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const Arithmetic arithmetic : kArithmetics)
      for (const LinearImplementation& implementation : linear_implementations(arithmetic))
        for (const int norm : {0, 1}) {
          Problem p({"", 19, 33, 21, Activation::gelu, true, false, false, norm});
          const std::vector<double> before = p.run(implementation);
          p.x.set(7 * 33 + 5, bad);
          const std::vector<double> after = p.run(implementation);
          for (size_t i = 0; i < after.size(); ++i)
            if (i / 21 == 7)
              EXPECT_FALSE(std::isfinite(after[i]) && after[i] == before[i]) << implementation.name;
            else
              ASSERT_EQ(after[i], before[i]) << implementation.name << " row " << i / 21;
        }
}

void expect_the_gradients(bool large) {
  for (const LinearCase& with : linear_cases()) {
    if (is_large(with) != large) continue;
    Problem p(with);
    Guarded dy(with.x, with.rows * with.out, 1);
    const auto values = normal(dy.count(), 20);
    for (int64_t i = 0; i < dy.count(); ++i) dy.set(i, values[i]);
    const auto run = [&](Isa isa, Arithmetic arithmetic) {
      Guarded dw(Element::f32, with.in * with.out, 1), db(Element::f32, with.out, 1);
      for (int64_t i = 0; i < dw.count(); ++i) dw.set(i, std::nan(""));
      force_isa(isa);
      linear_gradients({with.rows,
                        with.in,
                        with.out,
                        p.call().x,
                        {dy.data(), with.x, with.out},
                        arithmetic,
                        static_cast<float*>(dw.data()),
                        static_cast<float*>(db.data())});
      std::vector<double> all;
      for (int64_t i = 0; i < dw.count(); ++i) all.push_back(dw.get(i));
      for (int64_t i = 0; i < db.count(); ++i) all.push_back(db.get(i));
      return all;
    };
    const Isa before = active_isa();
    const std::vector<double> want = run(Isa::reference, Arithmetic::f32);
    std::vector<std::pair<std::string, std::vector<double>>> got;
    for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16})
      for (const LinearImplementation& implementation : linear_implementations(arithmetic))
        got.emplace_back(text("gradients, ", with.what, ", ", implementation.name),
                         run(implementation.isa, arithmetic));
    for (const auto& [what, made] : std::span(got).first(linear_implementations(Arithmetic::f32).size()))
      expect_within(made, want, 8e-6 * std::sqrt(1.0 + with.rows), what, with.in);
    // Both factors of a term may be off by a relative 2^-8: in total, of the sum of the terms' magnitudes.
    for (Guarded* tensor : {&p.x, &dy})
      for (int64_t i = 0; i < tensor->count(); ++i) tensor->set(i, std::abs(tensor->get(i)));
    const std::vector<double> size = run(Isa::reference, Arithmetic::f32);
    for (const auto& [what, made] : std::span(got).subspan(linear_implementations(Arithmetic::f32).size()))
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(made[i], want[i], (with.x == Element::f32 ? 0.008 : 8e-6) * size[i] + 1e-5)
            << what << ", number " << i;
    force_isa(before);
  }
}
TEST(Linear, GradientsAreTheDefinitions) { expect_the_gradients(false); }
TEST(Linear, GradientsOfLargeLayersAreAsExactAsThoseOfSmallOnes) { expect_the_gradients(true); }

TEST(Linear, GradientsDoNotDependOnThreads) {
  constexpr int64_t rows = 1735, in = 50, out = 101;
  const std::vector<float> x = normal(rows * in, 1), dy = normal(rows * out, 2);
  const int before = num_threads();
  const Isa held = active_isa();
  for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::bf16})
    for (const LinearImplementation& implementation : linear_implementations(arithmetic)) {
      force_isa(implementation.isa);
      const auto run = [&](int threads) {
        std::vector<float> dw(in * out, std::nanf("")), db(out, std::nanf(""));
        set_num_threads(threads);
        linear_gradients({rows,
                          in,
                          out,
                          {x.data(), Element::f32, in},
                          {dy.data(), Element::f32, out},
                          arithmetic,
                          dw.data(),
                          db.data()});
        dw.insert(dw.end(), db.begin(), db.end());
        return dw;
      };
      const std::vector<float> want = run(1);
      for (const int threads : {2, 3, 7, 40})
        EXPECT_EQ(run(threads), want) << implementation.name << ", " << threads << " threads";
    }
  force_isa(held);
  set_num_threads(before);
}

TEST(Linear, NormIsTheDefinition) {
  const Isa before = active_isa();
  for (const bool centred : {true, false})
    for (const Element x : {Element::f32, Element::bf16})
      for (const Element y : {Element::f32, Element::bf16})
        for (const int64_t columns : {1, 15, 16, 96, 197}) {
          constexpr int64_t rows = 7;
          Guarded in(x, rows * (columns + 3), 1), out(y, rows * (columns + 2), 1);
          const auto values = normal(in.count(), 30, 3, 2), weight = normal(columns, 31, 1, 0.2);
          for (int64_t i = 0; i < in.count(); ++i) in.set(i, values[i]);
          const auto run = [&](Isa isa) {
            force_isa(isa);
            norm_forward({rows,
                          columns,
                          {in.data(), x, columns + 3},
                          {weight.data(), nullptr, 1e-5f, centred},
                          {out.data(), y, columns + 2}});
            std::vector<double> all;
            for (int64_t i = 0; i < rows * columns; ++i)
              all.push_back(out.get(i / columns * (columns + 2) + i % columns));
            return all;
          };
          const std::vector<double> want = run(Isa::reference);
          const double t = (y == Element::bf16 ? 1.0 / 128 : 2e-6) * (1 + testing::largest(want));
          for (const LinearImplementation& implementation : linear_implementations(Arithmetic::f32))
            expect_within(run(implementation.isa), want, t, implementation.name, columns);
        }
  force_isa(before);
}

// A layer over all samples equals the layer over each of them, to the last bit.
TEST(Linear, ASampleDoesNotDependOnTheOthers) {
  for (const Arithmetic arithmetic : kArithmetics)
    for (const LinearImplementation& implementation : linear_implementations(arithmetic)) {
      Problem p(
          {"", 66, 40, 101, Activation::none, true, true, true, 1, Element::f32, Element::f32, 0, 0, 0, 3});
      const std::vector<double> want = p.run(implementation);
      const PackedLinear packed(p.layer(), implementation);
      for (int64_t i = 0; i < p.y.count(); ++i) p.y.set(i, std::nan(""));
      for (int64_t s = 0; s < 3; ++s) {
        LinearForward call = p.call();
        const RowNorm norm{p.norm_weight.data() + s * 40, p.norm_bias.data() + s * 40, 1e-6f, true};
        call.rows = 22, call.norm = &norm;
        call.x.data = static_cast<const float*>(call.x.data) + s * 22 * 40;
        call.residual.data = static_cast<const float*>(call.residual.data) + s * 22 * 101;
        call.y.data = static_cast<float*>(call.y.data) + s * 22 * 101;
        call.sample_scale += s * 101;
        linear_forward(packed, call);
      }
      EXPECT_EQ(p.results(), want) << implementation.name << static_cast<int>(arithmetic);
    }
}

TEST(Linear, WhatDoesNotFitIsRefused) {
  Problem p({"", 4, 5, 6});
  LinearLayer layer = p.layer();
  layer.in = 0;
  EXPECT_THROW(PackedLinear(layer, Arithmetic::f32), Error);
  layer = p.layer();
  layer.activation = Activation::silu_gate;
  EXPECT_THROW(PackedLinear(layer, Arithmetic::f32), Error);
  const PackedLinear packed(p.layer(), Arithmetic::f32);
  LinearForward call = p.call();
  call.x.row = 4;
  EXPECT_THROW(linear_forward(packed, call), Error);
  call = p.call();
  call.y.data = nullptr;
  EXPECT_THROW(linear_forward(packed, call), Error);
  const std::vector<float> scales(12, 1);
  call = p.call();
  call.sample_scale = scales.data();
  for (const int64_t rows : {0, 3, 5}) {
    call.sample_rows = rows;
    EXPECT_THROW(linear_forward(packed, call), Error) << rows;
  }
  const std::vector<float> wide(size_t{1} << 17, 1);
  layer = {};
  layer.in = 1 << 17, layer.out = 1, layer.weight = {wide.data(), Element::f32, layer.in, 1};
  EXPECT_THROW(PackedLinear(layer, Arithmetic::int8), Error);  // sums of 32 bits could overflow
}

}  // namespace
}  // namespace tessera::kernels
