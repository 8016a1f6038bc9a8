// The mLSTM cell's behaviour apart from its numbers: streaming, direction, storage, NaN, lengths, threads.
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/mlstm/mlstm_testing.h"

namespace tessera::kernels {
namespace {

using mlstm_testing::Case;
using mlstm_testing::convert;
using mlstm_testing::Doubles;
using mlstm_testing::GateKind;
using mlstm_testing::head_of;
using mlstm_testing::HeadTensor;
using mlstm_testing::Layout;
using mlstm_testing::Named;
using mlstm_testing::Problem;
using mlstm_testing::Results;
using mlstm_testing::results;
using mlstm_testing::walked;
using testing::expect_within;
using testing::for_each_implementation;
using testing::largest;

// Includes the form on pairs of bfloat16 if it exists.
template <class Body>
void for_each_form(Body body) {
  for_each_implementation(mlstm_table(), body);
  for_each_implementation(mlstm_pairs_table(), [&](const std::string& isa, const MlstmFunctions& pairs) {
    body("bf16 pairs, " + isa, pairs);
  });
}

// One token at a time with the state in place, as in streaming, gives the numbers of the whole sequence.
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
  for_each_form([&](const std::string& isa, const MlstmFunctions& functions) {
    forwards.run(functions), backwards.run(functions);
    for (int64_t item = 0; item < 4; ++item) {
      const Results a = results(forwards, item), b = results(backwards, item);
      for (size_t i = 0; i < a.size(); ++i)
        expect_within(b[i].values, a[i].values, 0, text(isa, " ", a[i].name), a[i].width);
    }
  });
}

// bfloat16 only affects storage: the results are those of the widened inputs, rounded once.
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
        // Backward reads the stored h: its rounding affects every gradient except dv.
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
  for_each_form([&](const std::string& isa, const MlstmFunctions& functions) {
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
  for_each_form([&](const std::string& isa, const MlstmFunctions& functions) {
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

// Sixteen thousand tokens: numbers stay finite and as exact as over a short stretch. Extreme gates cut most
// chunks short and make backward keep its states in two levels.
TEST(Mlstm, LongSequences) {
  for (const GateKind kind : {GateKind::initial, GateKind::extreme}) {
    const Case c{1, 1, 16384, 8, 8, kind};
    Problem p(c);
    p.run(choose(mlstm_table()));
    // The last 64 tokens against the reference, which gets the state before them.
    Problem head_part(c);
    MlstmHead<double> head = head_of<double>(p, 0), tail = head;
    const int64_t cut = c.tokens - 64;
    const auto keep = [&](Doubles& x, int64_t width) { x.erase(x.begin(), x.begin() + cut * width); };
    // A recurrence in double, token by token, is also the definition.
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
