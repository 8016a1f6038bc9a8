#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/attention/attention_cases.h"
#include "kernels/attention/attention_ref.h"

namespace tessera::kernels {
namespace {

using testing::Added;
using testing::attention_cases;
using testing::AttentionCase;
using testing::AttentionProblem;
using testing::expect_within;
using testing::for_each_implementation;
using testing::HeadTensor;
using testing::largest;
using testing::largest_difference;
using testing::Turned;
using Doubles = std::vector<double>;

AttentionHead<double> head_of(AttentionProblem& p, int64_t item) {
  return attention_head_of(p.shape(), p.c.mask, p.q.in(), p.k.in(), p.v.in(), p.rotary(), p.rotary(),
                           p.bias(), item);
}

template <class To, class From>
std::vector<To> convert(const std::vector<From>& from) {
  return std::vector<To>(from.begin(), from.end());
}
AttentionHead<float> in_float(const AttentionHead<double>& h) {
  const auto rotary = [](const RotaryRef<double>& t) {
    return RotaryRef<float>{t.pairs, convert<float>(t.cos), convert<float>(t.sin)};
  };
  return {h.queries,
          h.keys,
          h.dim,
          static_cast<float>(h.scale),
          h.mask,
          convert<float>(h.q),
          convert<float>(h.k),
          convert<float>(h.v),
          convert<float>(h.bias),
          rotary(h.q_rotary),
          rotary(h.k_rotary)};
}

struct Named {
  const char* name;
  Doubles values;
};
using Results = std::vector<Named>;

template <class Real>
Results expected(const AttentionHead<Real>& head, const Doubles& dout) {
  const auto g = attention_head_backward(head, convert<Real>(dout));
  return {{"out", convert<double>(attention_head_forward(head).out)},
          {"dq", convert<double>(g.dq)},
          {"dk", convert<double>(g.dk)},
          {"dv", convert<double>(g.dv)}};
}

// Working memory on its boundary, which holds whatever was there before: each has another kind of it.
class Scratch {
 public:
  explicit Scratch(const AttentionShape& shape) {
    static int made = 0;
    const float kinds[] = {std::numeric_limits<float>::quiet_NaN(), 1e-42f,
                           std::numeric_limits<float>::infinity(), -3e38f};
    const size_t bytes =
        std::max(attention_scratch_bytes(shape, false), attention_scratch_bytes(shape, true));
    memory_.assign(bytes / 4 + 32, kinds[made++ % 4]);
  }
  void* get() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64);
  }

 private:
  std::vector<float> memory_;
};

void run(AttentionProblem& p, const AttentionFunctions& functions) {
  Scratch scratch(p.shape());
  functions.forward(p.forward(), 0, attention_units(p.shape()), scratch.get());
  std::fill(p.dbias.begin(), p.dbias.end(), 0.0f);
  functions.backward(p.backward(), 0, p.items(), p.dbias.empty() ? nullptr : p.dbias.data(), scratch.get());
}

template <class Body>
void for_each_form(Body body) {
  for_each_implementation(attention_table(), body);
  for_each_implementation(
      attention_pairs_table(),
      [&](const std::string& isa, const AttentionFunctions& pairs) { body("bf16 pairs, " + isa, pairs); });
}

// The bound of flash-attention's tests: at most twice the error of the plain form in float, both against
// double. A result in bfloat16 is rounded once more, to 8 bits, as are the two factors of a product in pairs
// of bfloat16 (weights and their gradients).
TEST(Attention, EveryImplementationIsAsExactAsThePlainForm) {
  for (const AttentionCase& c : attention_cases()) {
    AttentionProblem p(c);
    std::vector<Results> want, plain;
    std::vector<double> plain_error(4), size(4);
    for (int64_t item = 0; item < p.items(); ++item) {
      const AttentionHead<double> head = head_of(p, item);
      want.push_back(expected(head, p.dout.item(item)));
      plain.push_back(expected(in_float(head), p.dout.item(item)));
      for (size_t i = 0; i < 4; ++i) {
        plain_error[i] =
            std::max(plain_error[i], largest_difference(plain[item][i].values, want[item][i].values));
        size[i] = std::max(size[i], largest(want[item][i].values));
      }
    }
    // What a small number of terms leaves by luck.
    for (size_t i = 0; i < 4; ++i) plain_error[i] = 2 * plain_error[i] + 1e-6 * std::max(size[i], size[0]);
    if (c.element == Element::bf16)
      for (size_t i = 0; i < 4; ++i) plain_error[i] += std::ldexp(size[i], -8);
    for_each_implementation(
        attention_table(), [&](const std::string& isa, const AttentionFunctions& functions) {
          run(p, functions);
          for (int64_t item = 0; item < p.items(); ++item) {
            const HeadTensor* got[] = {&p.out, &p.dq, &p.dk, &p.dv};
            for (size_t i = 0; i < 4; ++i)
              expect_within(got[i]->item(item), want[item][i].values, plain_error[i],
                            text(isa, " ", c, " item ", item, " ", want[item][i].name), c.dim);
          }
        });
  }
}

// Whole numbers of 16 bits in place of floats: off by less than the largest output's rounding to bfloat16, by
// which a result in bfloat16 is off once more.
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

// Turned queries and keys, weights, values, the scores' gradients and the result are each off by up to 2^-8
// of themselves, most of them by less and to either side: together within 2^-7 of the largest number, that of
// the output where a gradient's terms, which are of the output's size, cancel.
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

// The standard deviation of the score that is the furthest off where rows of q and k are rounded to steps of
// a 127th of their largest number; turning a pair makes that up to sqrt(2) times as large.
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

// Scores off by no more than five standard deviations, each weight by as much of itself; the rest is rounded
// to bfloat16 as above.
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

// The largest number of every row is 127 of its steps, which are powers of two: sums are whole, and the rest
// is what pairs of bfloat16 do.
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

// Rows of bfloat16 that lie in whole words are read in place, others are copied first: the same numbers.
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

// A head whose sums of products are as large as the widths of the numbers allow.
TEST(Attention, WholeNumbersDoNotOverflow) {
  const AttentionForwardFunction forward = attention_fixed_point();
  if (!forward) GTEST_SKIP() << "no products of whole numbers here";
  AttentionProblem p({1, 1, 20, 300, 64});
  p.q.fill(std::vector<float>(20 * 64, -3)), p.k.fill(std::vector<float>(300 * 64, 5));
  p.v.fill(std::vector<float>(300 * 64, -7));
  const Outputs out = outputs_of(p, forward);
  for (const double value : out[0]) ASSERT_NEAR(value, -7, 1e-5);
}
// The widest head there is: only keys that point where the queries do are seen.
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

// Numbers whose products vanish give the mean of v, not 0 times infinity.
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

// The bias' gradient is summed over what the bias is broadcast over, on any number of threads.
TEST(Attention, TheGradientOfABiasIsSummedOverWhatItServes) {
  for (const AttentionCase& c : attention_cases()) {
    if (c.bias == Added::none) continue;
    AttentionProblem p(c);
    Doubles want(p.dbias.size());
    const int64_t pairs = c.queries * c.keys;
    for (int64_t item = 0; item < p.items(); ++item) {
      const auto g = attention_head_backward(head_of(p, item), p.dout.item(item));
      const int64_t sample = item / c.heads % p.bias_batches(), head = item % c.heads % p.bias_heads();
      for (int64_t i = 0; i < pairs; ++i) want[(sample * p.bias_heads() + head) * pairs + i] += g.dbias[i];
    }
    // ds is a difference of two numbers of the size of dout . v; out is rounded to its type.
    const double tolerance = (c.element == Element::bf16 ? 0x1p-8 : 4e-7) * 8 * std::sqrt(double(c.dim));
    const auto check_all = [&](const std::string& what) {
      expect_within(convert<double>(p.dbias), want, tolerance, text(what, " ", c), c.keys);
    };
    for_each_implementation(attention_table(),
                            [&](const std::string& isa, const AttentionFunctions& functions) {
                              run(p, functions);
                              check_all(isa);
                            });
    attention_forward(p.forward());
    attention_backward(p.backward());
    check_all("on threads");
  }
}

// Central differences of the reference in double check its gradients, which everything else is compared with.
TEST(Attention, TheReferenceHasTheGradientsOfItsForward) {
  for (const AttentionCase& c :
       {AttentionCase{1, 1, 4, 5, 6, {.later = 0.25f}, Turned::shared, Added::full},
        AttentionCase{
            1, 1, 3, 6, 3, {.causal = true, .window = 3, .first_query = 2}, Turned::no, Added::full}}) {
    AttentionProblem p(c);
    AttentionHead<double> head = head_of(p, 0);
    for (double& b : head.bias) b = std::isinf(b) ? 0 : b;
    const Doubles dout = p.dout.item(0);
    const auto g = attention_head_backward(head, dout);
    const auto loss = [&] {
      const Doubles out = attention_head_forward(head).out;
      double total = 0;
      for (size_t i = 0; i < out.size(); ++i) total += out[i] * dout[i];
      return total;
    };
    const auto check_slopes = [&](Doubles& x, const Doubles& gradient, const char* name) {
      for (size_t i = 0; i < x.size(); ++i) {
        const double at = x[i], step = 1e-5;
        x[i] = at + step;
        const double above = loss();
        x[i] = at - step;
        const double below = loss();
        x[i] = at;
        // The third derivative's share is about step^2, rounding's 1e-16 / step.
        EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-8) << name << " " << i << " of " << c;
      }
    };
    check_slopes(head.q, g.dq, "dq"), check_slopes(head.k, g.dk, "dk"), check_slopes(head.v, g.dv, "dv");
    check_slopes(head.bias, g.dbias, "dbias");
  }
}

// softmax over all keys first, then the triangle: rows do not sum to one, but as the mask's share says.
TEST(Attention, AMaskBehindTheSoftmaxLeavesTheDenominatorWhole) {
  AttentionProblem p({1, 1, 40, 40, 16, {.later = 0}});
  for (int64_t t = 0; t < 40; ++t)
    for (int64_t d = 0; d < 16; ++d) p.k.set(0, t, d, 0), p.v.set(0, t, d, 1);
  for_each_form([&](const std::string& isa, const AttentionFunctions& functions) {
    run(p, functions);
    for (int64_t t = 0; t < 40; ++t)
      EXPECT_NEAR(p.out.get(0, t, 3), static_cast<double>(t + 1) / 40, 1e-6) << isa << " query " << t;
  });
}

// Queries that see no key: by the bias, or since there is none.
TEST(Attention, AQueryWithoutKeysGivesZerosAndNoGradient) {
  AttentionProblem p({1, 1, 20, 20, 16, {}, Turned::no, Added::full});
  std::fill_n(p.bias_values.begin() + 20, 20, -INFINITY);
  for_each_form([&](const std::string& isa, const AttentionFunctions& functions) {
    run(p, functions);
    for (int64_t d = 0; d < 16; ++d) {
      EXPECT_EQ(p.out.get(0, 1, d), 0) << isa;
      EXPECT_EQ(p.dq.get(0, 1, d), 0) << isa;
      EXPECT_TRUE(std::isfinite(p.dv.get(0, 3, d))) << isa;
    }
  });
}

TEST(Attention, ANanStaysInItsSampleAndHead) {
  for (const Element element : {Element::f32, Element::bf16}) {
    AttentionProblem p(
        {2, 2, 33, 33, 24, {}, Turned::shared, Added::none, testing::Layout::tokens_first, element});
    p.k.set(1, 4, 2, std::nan(""));
    for_each_form([&](const std::string& isa, const AttentionFunctions& functions) {
      run(p, functions);
      for (int64_t item = 0; item < 4; ++item) {
        EXPECT_EQ(std::isnan(p.out.get(item, 7, 0)), item == 1) << isa << " item " << item;
        EXPECT_EQ(std::isnan(p.dq.get(item, 7, 0)), item == 1) << isa << " item " << item;
        EXPECT_EQ(std::isnan(p.dv.get(item, 9, 5)), item == 1) << isa << " item " << item;
      }
    });
    if (const AttentionForwardFunction forward = attention_fixed_point()) {
      forward(p.forward(), 0, attention_units(p.shape()), Scratch(p.shape()).get());
      for (int64_t item = 0; item < 4; ++item)
        EXPECT_EQ(std::isnan(p.out.get(item, 7, 0)), item == 1) << "whole numbers, item " << item;
    }
    if (const AttentionForwardFunction forward = attention_byte_scores()) {
      forward(p.forward(), 0, attention_units(p.shape()), Scratch(p.shape()).get());
      for (int64_t item = 0; item < 4; ++item)
        EXPECT_EQ(std::isnan(p.out.get(item, 7, 0)), item == 1) << "scores of bytes, item " << item;
    }
  }
}

// Token by token through a key-value cache gives what the whole sequence gives.
TEST(Attention, StreamingThroughACacheIsTheCausalSequence) {
  AttentionProblem whole({1, 2, 37, 37, 32, {.causal = true}});
  for_each_implementation(
      attention_table(), [&](const std::string& isa, const AttentionFunctions& functions) {
        run(whole, functions);
        HeadTensor one(1, 2, 37, 32, testing::Layout::tokens_first);
        for (int64_t t = 0; t < 37; ++t) {
          AttentionForward call = whole.forward();
          call.shape.queries = 1, call.shape.keys = t + 1, call.mask.first_query = t;
          call.shape = attention_plan(call.shape, 1);
          call.lse = nullptr;
          call.q.data = static_cast<const float*>(call.q.data) + t * call.q.token;
          call.out = one.out();
          call.out.data = static_cast<float*>(call.out.data) + t * call.out.token;
          functions.forward(call, 0, attention_units(call.shape), Scratch(call.shape).get());
        }
        for (int64_t item = 0; item < 2; ++item)
          expect_within(one.item(item), whole.out.item(item), 2e-6, text(isa, " head ", item), 32);
      });
}

TEST(Attention, LongSequencesKeepTheirPrecision) {
  AttentionProblem p({1, 1, 16384, 16384, 16, {.causal = true, .window = 3000}, Turned::shared});
  attention_forward(p.forward());
  attention_backward(p.backward());
  // The last query by hand.
  AttentionHead<double> head = head_of(p, 0);
  const int64_t last = 16383;
  head.mask.first_query = last;
  head.queries = 1;
  head.q.erase(head.q.begin(), head.q.begin() + last * 16);
  for (auto* table : {&head.q_rotary.cos, &head.q_rotary.sin})
    table->erase(table->begin(), table->begin() + last * p.pairs());
  const auto want = attention_head_forward(head);
  const Doubles dout = p.dout.item(0);
  const auto g = attention_head_backward(head, Doubles(dout.end() - 16, dout.end()));
  for (int64_t d = 0; d < 16; ++d) {
    EXPECT_NEAR(p.out.get(0, last, d), want.out[d], 2e-6);
    EXPECT_NEAR(p.dq.get(0, last, d), g.dq[d], 4e-6);
    EXPECT_NEAR(p.dv.get(0, last, d), g.dv[last * 16 + d], 2e-6);  // nobody else sees the last key
  }
}

TEST(Attention, WhatCannotBeIsRefused) {
  AttentionProblem p({1, 1, 4, 4, 4});
  AttentionForward call = p.forward();
  call.shape.dim = 0;
  EXPECT_THROW(attention_forward(call), Error);
  call = p.forward();
  call.mask.window = -1;
  EXPECT_THROW(attention_forward(call), Error);
  call = p.forward();
  call.shape.scale = 0;
  EXPECT_THROW(attention_forward(call), Error);
  AttentionBackward back = p.backward();
  float dbias;
  back.dbias = &dbias;
  EXPECT_THROW(attention_backward(back), Error);
}

}  // namespace
}  // namespace tessera::kernels
