#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/attention/attention_testing.h"

namespace tessera::kernels {
namespace {

using testing::Added;
using testing::attention_cases;
using testing::AttentionCase;
using testing::AttentionProblem;
using testing::convert;
using testing::Doubles;
using testing::expect_within;
using testing::expected;
using testing::for_each_form;
using testing::for_each_implementation;
using testing::head_of;
using testing::HeadTensor;
using testing::in_float;
using testing::largest;
using testing::largest_difference;
using testing::Results;
using testing::Rotated;
using testing::run;
using testing::Scratch;

// The bound of flash-attention's tests: at most twice the error of the plain float form, both against double.
// A result in bfloat16 has one more rounding, to 8 bits. The two factors of a product in pairs of bfloat16
// (weights and their gradients) do too.
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
    // With few terms, the plain form may be exact by luck.
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

// The bias' gradient is summed over the axes that the bias broadcasts, on any number of threads.
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

// Central differences of the reference in double check its gradients, the standard for all others.
TEST(Attention, TheReferenceHasTheGradientsOfItsForward) {
  for (const AttentionCase& c :
       {AttentionCase{1, 1, 4, 5, 6, {.future_weight = 0.25f}, Rotated::shared, Added::full},
        AttentionCase{
            1, 1, 3, 6, 3, {.causal = true, .window = 3, .first_query = 2}, Rotated::no, Added::full}}) {
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
        // The third derivative contributes about step^2, rounding 1e-16 / step.
        EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-8) << name << " " << i << " of " << c;
      }
    };
    check_slopes(head.q, g.dq, "dq"), check_slopes(head.k, g.dk, "dk"), check_slopes(head.v, g.dv, "dv");
    check_slopes(head.bias, g.dbias, "dbias");
  }
}

// Softmax over all keys first, then the triangle: rows sum to the unmasked share, not to one.
TEST(Attention, AMaskBehindTheSoftmaxLeavesTheDenominatorWhole) {
  AttentionProblem p({1, 1, 40, 40, 16, {.future_weight = 0}});
  for (int64_t t = 0; t < 40; ++t)
    for (int64_t d = 0; d < 16; ++d) p.k.set(0, t, d, 0), p.v.set(0, t, d, 1);
  for_each_form([&](const std::string& isa, const AttentionFunctions& functions) {
    run(p, functions);
    for (int64_t t = 0; t < 40; ++t)
      EXPECT_NEAR(p.out.get(0, t, 3), static_cast<double>(t + 1) / 40, 1e-6) << isa << " query " << t;
  });
}

// Queries that see no key: hidden by the bias, or because none exists.
TEST(Attention, AQueryWithoutKeysGivesZerosAndNoGradient) {
  AttentionProblem p({1, 1, 20, 20, 16, {}, Rotated::no, Added::full});
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
        {2, 2, 33, 33, 24, {}, Rotated::shared, Added::none, testing::Layout::tokens_first, element});
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

// Token by token through a key-value cache gives the result of the whole sequence.
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
  AttentionProblem p({1, 1, 16384, 16384, 16, {.causal = true, .window = 3000}, Rotated::shared});
  attention_forward(p.forward());
  attention_backward(p.backward());
  // The last query, computed by hand.
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
    EXPECT_NEAR(p.dv.get(0, last, d), g.dv[last * 16 + d], 2e-6);  // no other query sees the last key
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