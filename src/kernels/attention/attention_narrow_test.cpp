// Attention on narrow numbers: 16-bit integers, pairs of bfloat16, bytes.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_testing.h"

namespace tessera::kernels {
namespace {

using testing::attention_cases;
using testing::AttentionCase;
using testing::AttentionProblem;
using testing::Doubles;
using testing::expect_within;
using testing::expected;
using testing::for_each_implementation;
using testing::head_of;
using testing::HeadTensor;
using testing::largest;
using testing::Results;
using testing::Rotated;
using testing::run;
using testing::Scratch;

// 16-bit integers in place of floats: the error is below the largest output's rounding to bfloat16. A result
// in bfloat16 adds that rounding once more.
TEST(Attention, WholeNumbersAreAsExactAsBfloat16) {
  const AttentionForwardFunction forward = attention_fixed_point();
  if (!forward) GTEST_SKIP() << "no products of whole numbers here";
  for (const AttentionCase& c : attention_cases()) {
    AttentionProblem p(c);
    std::vector<Doubles> want;
    double size = 0;
    for (int64_t item = 0; item < p.items(); ++item) {
      want.push_back(attention_head_forward(head_of(p, item)).out);
      size = std::max(size, largest(want.back()));
    }
    forward(p.forward(), 0, attention_units(p.shape()), Scratch(p.shape()).get());
    for (int64_t item = 0; item < p.items(); ++item)
      expect_within(p.out.item(item), want[item], std::ldexp(size, c.element == Element::bf16 ? -7 : -8),
                    text(c, " item ", item), c.dim);
  }
}

// Rotated queries and keys, weights, values, the scores' gradients and the result each have a relative error
// of up to 2^-8, mostly smaller and of either sign. Together they stay within 2^-7 of the largest number.
// Where a gradient's terms cancel, that number is the largest output, which the terms match in size.
void expect_as_exact_as_bfloat16(const std::string& isa, const AttentionFunctions& pairs) {
  for (AttentionCase c : attention_cases())
    for (const Element element : {Element::f32, Element::bf16}) {
      c.element = element;
      AttentionProblem p(c), plain(c);
      std::vector<Results> want;
      std::vector<double> size(4);
      for (int64_t item = 0; item < p.items(); ++item) {
        want.push_back(expected(head_of(p, item), p.dout.item(item)));
        for (size_t i = 0; i < 4; ++i) size[i] = std::max(size[i], largest(want.back()[i].values));
      }
      run(p, pairs), run(plain, choose(attention_table()));
      double largest_bias = 0;
      for (const float value : plain.dbias) largest_bias = std::max(largest_bias, std::abs(double{value}));
      for (size_t i = 0; i < p.dbias.size(); ++i)
        ASSERT_NEAR(p.dbias[i], plain.dbias[i], std::ldexp(largest_bias, -6))
            << text(isa, " ", c, " bias ", i);
      for (int64_t item = 0; item < p.items(); ++item) {
        const HeadTensor* got[] = {&p.out, &p.dq, &p.dk, &p.dv};
        for (size_t i = 0; i < 4; ++i)
          expect_within(got[i]->item(item), want[item][i].values, std::ldexp(std::max(size[i], size[0]), -7),
                        text(isa, " ", c, " item ", item, " ", want[item][i].name), c.dim);
      }
    }
}
TEST(Attention, PairsAreAsExactAsBfloat16) {
  if (!attention_bf16_pairs()) GTEST_SKIP() << "no products of bfloat16 pairs here";
  for_each_implementation(attention_pairs_table(), expect_as_exact_as_bfloat16);
}

// Returns the largest standard deviation of a score's error if rows of q and k are rounded to steps of 1/127
// of their largest number. Rotating a pair multiplies it by up to sqrt(2).
double largest_score_error(const AttentionHead<double>& head) {
  struct Size {
    double step = 0, norm = 0;
  };
  const auto largest_of = [&](const Doubles& rows) {
    Size largest;
    for (auto row = rows.begin(); row != rows.end(); row += head.dim) {
      double most = 0, squares = 0;
      for (auto x = row; x != row + head.dim; ++x) most = std::max(most, std::abs(*x)), squares += *x * *x;
      largest.step = std::max(largest.step, std::sqrt(2.0) * most / 127);
      largest.norm = std::max(largest.norm, std::sqrt(squares));
    }
    return largest;
  };
  const Size q = largest_of(head.q), k = largest_of(head.k);
  return head.scale * std::hypot(q.step * k.norm, k.step * q.norm) / std::sqrt(12.0);
}

// Scores may be off by up to five standard deviations, and each weight by the same relative error. The rest
// is rounded to bfloat16 as above.
TEST(Attention, ScoresOfBytesAreAsExactAsBytes) {
  const AttentionForwardFunction forward = attention_byte_scores();
  if (!forward) GTEST_SKIP() << "no products of bytes and of bfloat16 pairs here";
  for (AttentionCase c : attention_cases())
    for (const Element element : {Element::f32, Element::bf16}) {
      c.element = element;
      AttentionProblem p(c, 1, /*in_words=*/true);
      forward(p.forward(), 0, attention_units(p.shape()), Scratch(p.shape()).get());
      for (int64_t item = 0; item < p.items(); ++item) {
        const AttentionHead<double> head = head_of(p, item);
        const Doubles want = attention_head_forward(head).out;
        expect_within(p.out.item(item), want,
                      std::ldexp(largest(want), -7) + 5 * largest_score_error(head) * largest(head.v),
                      text(c, " item ", item), c.dim);
      }
    }
}

using Outputs = std::vector<Doubles>;
Outputs outputs_of(AttentionProblem& p, AttentionForwardFunction forward) {
  forward(p.forward(), 0, attention_units(p.shape()), Scratch(p.shape()).get());
  Outputs out;
  for (int64_t item = 0; item < p.items(); ++item) out.push_back(p.out.item(item));
  return out;
}

// The largest number of every row is 127 steps, and steps are powers of two. So sums are integers, and the
// rest equals the computation on pairs of bfloat16.
TEST(Attention, ScoresOfBytesAreExactWhereNumbersAreSteps) {
  const AttentionForwardFunction bytes = attention_byte_scores();
  if (!bytes) GTEST_SKIP() << "no products of bytes and of bfloat16 pairs here";
  AttentionForwardFunction pairs = nullptr;
  for (const auto& entry : attention_pairs_table())
    if (entry.isa == Isa::avx512_bf16) pairs = entry.functions->forward;
  for (AttentionCase c : {AttentionCase{2, 3, 37, 41, 64}, AttentionCase{1, 2, 70, 100, 48, {.window = 25}},
                          AttentionCase{1, 2, 40, 90, 24, {.causal = true, .first_query = 50}}})
    for (const Element element : {Element::f32, Element::bf16}) {
      c.element = element, c.query_rows = 33, c.key_block = 38;
      AttentionProblem p(c, 1, /*in_words=*/true);
      const auto fill = [&](HeadTensor& rows, int64_t tokens, double size) {
        for (int64_t item = 0; item < p.items(); ++item)
          for (int64_t t = 0; t < tokens; ++t)
            for (int64_t d = 0; d < c.dim; ++d) {
              const auto steps = static_cast<double>((item * 3 + t * 5 + d * d * 7) % 9 - 4) * 16;
              rows.set(item, t, d, std::ldexp(d == t % 7 ? 127 : steps, -static_cast<int>(t % 3)) * size);
            }
      };
      fill(p.q, c.queries, 1.0 / 128), fill(p.k, c.keys, 1.0 / 32);
      EXPECT_EQ(outputs_of(p, bytes), outputs_of(p, pairs)) << c;
    }
}

// Rows of bfloat16 in whole words are read in place, others are copied first: both give the same numbers.
TEST(Attention, RowsInPlaceGiveWhatCopiesGive) {
  if (!attention_bf16_pairs()) GTEST_SKIP() << "no products of bfloat16 pairs here";
  for (AttentionCase c : attention_cases()) {
    c.element = Element::bf16;
    AttentionProblem in_place(c, 1, /*in_words=*/true), copied(c);
    for_each_implementation(
        attention_pairs_table(), [&](const std::string& isa, const AttentionFunctions& functions) {
          run(in_place, functions), run(copied, functions);
          const HeadTensor* mine[] = {&in_place.out, &in_place.dq, &in_place.dk, &in_place.dv};
          const HeadTensor* theirs[] = {&copied.out, &copied.dq, &copied.dk, &copied.dv};
          for (int64_t item = 0; item < copied.items(); ++item)
            for (size_t i = 0; i < 4; ++i)
              ASSERT_EQ(mine[i]->item(item), theirs[i]->item(item)) << isa << " " << c << " " << i;
        });
    if (const AttentionForwardFunction bytes = attention_byte_scores()) {
      ASSERT_EQ(outputs_of(in_place, bytes), outputs_of(copied, bytes)) << c;
    }
  }
}

// A head with sums of products as large as the number widths allow.
TEST(Attention, WholeNumbersDoNotOverflow) {
  const AttentionForwardFunction forward = attention_fixed_point();
  if (!forward) GTEST_SKIP() << "no products of whole numbers here";
  AttentionProblem p({1, 1, 20, 300, 64});
  p.q.fill(std::vector<float>(20 * 64, -3)), p.k.fill(std::vector<float>(300 * 64, 5));
  p.v.fill(std::vector<float>(300 * 64, -7));
  const Outputs out = outputs_of(p, forward);
  for (const double value : out[0]) ASSERT_NEAR(value, -7, 1e-5);
}
// The widest possible head: a query sees only keys that point in its direction.
TEST(Attention, BytesOfAWideHeadDoNotOverflow) {
  const AttentionForwardFunction forward = attention_byte_scores();
  if (!forward) GTEST_SKIP() << "no products of bytes and of bfloat16 pairs here";
  constexpr int64_t kWide = 4096, kKeys = 20;
  AttentionProblem p({1, 1, 3, kKeys, kWide});
  p.q.fill(std::vector<float>(3 * kWide, -3));
  for (int64_t key = 0; key < kKeys; ++key)
    for (int64_t d = 0; d < kWide; ++d)
      p.k.set(0, key, d, key % 2 ? -5 : 5), p.v.set(0, key, d, key % 2 ? -7 : 9);
  const Outputs out = outputs_of(p, forward);
  for (const double value : out[0]) ASSERT_EQ(value, -7);
}

// If products vanish, the result is the mean of v, not 0 times infinity.
TEST(Attention, WholeNumbersOfTinyScoresStayNumbers) {
  if (!attention_fixed_point()) GTEST_SKIP() << "no products of whole numbers here";
  for (const AttentionForwardFunction forward : {attention_fixed_point(), attention_byte_scores()}) {
    if (!forward) continue;  // no bytes here
    for (const float tiny : {5e-20f, 1e-37f, 1e-42f}) {
      AttentionProblem p({1, 1, 3, 65, 64});
      p.q.fill(std::vector<float>(3 * 64, tiny)), p.k.fill(std::vector<float>(65 * 64, tiny));
      p.v.fill(std::vector<float>(65 * 64, 2));
      const Outputs out = outputs_of(p, forward);
      for (const double value : out[0]) ASSERT_NEAR(value, 2, 1e-5);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
