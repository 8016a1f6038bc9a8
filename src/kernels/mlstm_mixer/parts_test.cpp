#include "kernels/mlstm_mixer/parts.h"

#include <cmath>

#include "kernels/mlstm_mixer/parts_testing.h"

namespace tessera::kernels {
namespace {

using namespace testing;

struct Grid {
  int64_t batch, rows, columns, channels, kernel_rows, kernel_columns, pad_top, pad_left;
  bool reverse;
};

// Grids and sequences, published and odd kernels; channels around the vector widths.
const Grid kGrids[] = {
    {2, 7, 7, 8, 3, 3, 1, 1, false},   {1, 8, 8, 192, 3, 3, 1, 1, true}, {1, 14, 14, 16, 3, 3, 1, 1, false},
    {2, 5, 3, 20, 3, 3, 1, 1, true},   {1, 1, 1, 12, 3, 3, 1, 1, false}, {1, 2, 9, 33, 3, 3, 1, 1, true},
    {2, 1, 25, 24, 1, 4, 0, 3, false}, {2, 1, 25, 24, 1, 4, 0, 3, true}, {1, 1, 7, 768, 1, 3, 0, 2, true},
    {1, 1, 2, 17, 1, 4, 0, 3, false},  {1, 6, 5, 40, 5, 5, 2, 2, true},  {1, 1, 9, 9, 1, 7, 0, 6, false},
    {1, 4, 4, 4, 1, 1, 0, 0, true},
};

void expect_the_depthwise_definition(bool half) {
  for (const Grid& g : kGrids) {
    const DepthwiseShape shape{g.batch,          g.rows,    g.columns,  g.channels, g.kernel_rows,
                               g.kernel_columns, g.pad_top, g.pad_left, g.reverse};
    const int64_t T = g.rows * g.columns, B = g.batch * T, C = g.channels,
                  taps = g.kernel_rows * g.kernel_columns;
    Tensor x(B, C, 1, 5), weight(taps, C, 2), bias(1, C, 3), pre(B, C, 4, 3), out(B, C, 5), dpre(B, C, 7),
        add(B, C, 8), dx(B, C, 9, 1), dtaps(taps, C, 10), dbias(1, C, 11);
    if (half)
      for (Tensor* t : {&x, &out, &dx}) t->store_halves();
    const std::string what =
        text(half ? "bf16 " : "", "grid ", g.rows, "x", g.columns, " channels ", C, " kernel ", g.kernel_rows,
             "x", g.kernel_columns, g.reverse ? " reverse" : "");
    const auto forward = [&]<class Real>(Real) {
      return DepthwiseForwardOf<Real>{shape,
                                      stored_in<Real>(x, T),
                                      data<Real>(weight),
                                      data<Real>(bias),
                                      rows_out<Real>(pre, T),
                                      stored_out<Real>(out, T),
                                      0,
                                      0};
    };
    // A sum of `taps` products and the bias, then the roundings of silu.
    compare(
        what, B, {{"pre", &pre, taps + 2.0}, {"out", &out, half ? kRoundingsOfHalf : taps + 7.0}},
        [&](int64_t b, int64_t e) { depthwise_forward_ref(forward(0.0), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.depthwise_forward(forward(0.0f), b, e); });
    const auto backward = [&]<class Real>(Real) {
      return DepthwiseBackwardOf<Real>{shape,
                                       stored_in<Real>(x, T),
                                       rows_in<Real>(dpre, T),
                                       data<Real>(weight),
                                       rows_in<Real>(add, T),
                                       stored_out<Real>(dx, T),
                                       data<Real>(dtaps),
                                       data<Real>(dbias)};
    };
    const double sum = 4 * std::sqrt(static_cast<double>(B)) + 4;
    compare(
        what, B,
        {{"dx", &dx, half ? kRoundingsOfHalf : taps + 3.0}, {"dtaps", &dtaps, sum}, {"dbias", &dbias, sum}},
        [&](int64_t b, int64_t e) { depthwise_backward_ref(backward(0.0), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.depthwise_backward(backward(0.0f), b, e); });
  }
}

TEST(Depthwise, EveryImplementationMatchesTheDefinition) {
  for (const bool half : {false, true}) expect_the_depthwise_definition(half);
}

// The middle channels of lanes that are two blocks wider.
struct HeadwiseProblem {
  explicit HeadwiseProblem(const HeadwiseCase& config)
      : c(config),
        rows(c.batch * c.tokens),
        a(rows, c.channels, 1, 3),
        x(rows, c.channels, 2, 1),
        wq(4, c.channels, 3, 8),
        wk(4, c.channels, 4, 8),
        wv(4, c.channels, 5, 8),
        bq(1, c.channels, 6),
        bk(1, c.channels, 7),
        bv(1, c.channels, 8),
        q(rows, c.channels, 11),
        k(rows, c.channels, 12),
        v(rows, c.channels, 13, 2),
        dq(rows, c.channels, 15),
        dk(rows, c.channels, 16),
        dv(rows, c.channels, 17, 1),
        da(rows, c.channels, 19),
        dx(rows, c.channels, 20, 3),
        swq(4, c.channels, 21, 8),
        swk(4, c.channels, 22, 8),
        swv(4, c.channels, 23, 8),
        sbq(1, c.channels, 24),
        sbk(1, c.channels, 25),
        sbv(1, c.channels, 26) {}
  template <class Real>
  HeadwiseWeightsOf<Real> weights() {
    return {data<Real>(wq), data<Real>(wk), data<Real>(wv), wq.stride(),
            data<Real>(bq), data<Real>(bk), data<Real>(bv)};
  }
  template <class Real>
  HeadwiseForwardOf<Real> forward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            stored_in<Real>(a, T),
            stored_in<Real>(x, T),
            weights<Real>(),
            stored_out<Real>(q, T),
            stored_out<Real>(k, T),
            stored_out<Real>(v, T),
            pairs};
  }
  template <class Real>
  HeadwiseBackwardOf<Real> backward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            stored_in<Real>(a, T),
            stored_in<Real>(x, T),
            rows_in<Real>(dq, T),
            rows_in<Real>(dk, T),
            rows_in<Real>(dv, T),
            weights<Real>(),
            rows_out<Real>(da, T),
            rows_out<Real>(dx, T),
            {data<Real>(swq), data<Real>(swk), data<Real>(swv), swq.stride(), data<Real>(sbq),
             data<Real>(sbk), data<Real>(sbv)}};
  }
  void store_halves(bool outputs) {
    a.store_halves(), x.store_halves();
    if (outputs) q.store_halves(), k.store_halves(), v.store_halves();
  }
  // Rounds the numbers that a kernel rounds in advance.
  void multiply_pairs() {
    pairs = true;
    for (Tensor* weight : {&wq, &wk, &wv}) weight->round();
  }
  HeadwiseCase c;
  int64_t rows;
  bool pairs = false;
  Tensor a, x, wq, wk, wv, bq, bk, bv, q, k, v, dq, dk, dv, da, dx, swq, swk, swv, sbq, sbk, sbv;
};

enum class Halves { none, inputs, all };
void expect_the_headwise_definition(Halves halves, bool pairs) {
  for (const HeadwiseCase& c : kHeadwise) {
    HeadwiseProblem p(c);
    if (halves != Halves::none) p.store_halves(halves == Halves::all);
    if (pairs) p.multiply_pairs();
    const double forward = halves == Halves::all ? kRoundingsOfHalf : 6;
    const std::string what =
        text("halves ", static_cast<int>(halves), " B", c.batch, " T", c.tokens, " C", c.channels);
    compare(
        what, p.rows, {{"q", &p.q, forward}, {"k", &p.k, forward}, {"v", &p.v, forward}},
        [&](int64_t b, int64_t e) { headwise_forward_ref(p.forward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.headwise_forward(p.forward<float>(), b, e); });
    const double sum = 4 * std::sqrt(static_cast<double>(p.rows)) + 8;
    const auto backward = [&](bool inputs, bool biases, const std::vector<Checked>& checked) {
      const auto call = [&]<class Real>(Real) {
        HeadwiseBackwardOf<Real> all = p.backward<Real>();
        if (!inputs) all.da.data = all.dx.data = nullptr;
        if (!biases) all.sums.q_bias = all.sums.k_bias = all.sums.v_bias = nullptr;
        return all;
      };
      compare(
          what, p.rows, checked, [&](int64_t b, int64_t e) { headwise_backward_ref(call(0.0), b, e); },
          [&](const MixerFunctions& f, int64_t b, int64_t e) { f.headwise_backward(call(0.0f), b, e); });
    };
    const std::vector<Checked> lanes = {{"wq", &p.swq, sum}, {"wk", &p.swk, sum}, {"wv", &p.swv, sum}};
    backward(false, false, lanes);
    std::vector<Checked> all = {
        {"da", &p.da, 12}, {"dx", &p.dx, 12}, {"bq", &p.sbq, sum}, {"bk", &p.sbk, sum}, {"bv", &p.sbv, sum}};
    all.insert(all.end(), lanes.begin(), lanes.end());
    backward(true, true, all);
  }
}

TEST(Headwise, EveryImplementationMatchesTheDefinition) {
  expect_the_headwise_definition(Halves::none, false);
  for (const Halves halves : {Halves::inputs, Halves::all})
    for (const bool pairs : {false, true}) expect_the_headwise_definition(halves, pairs);
}

TEST(Depthwise, TheDefinitionHasTheGradientsOfItsForward) {
  for (const Grid& g : {Grid{1, 3, 4, 2, 3, 3, 1, 1, false}, Grid{2, 1, 5, 3, 1, 4, 0, 3, true}}) {
    const DepthwiseShape shape{g.batch,          g.rows,    g.columns,  g.channels, g.kernel_rows,
                               g.kernel_columns, g.pad_top, g.pad_left, g.reverse};
    const int64_t T = g.rows * g.columns, B = g.batch * T, C = g.channels,
                  taps = g.kernel_rows * g.kernel_columns;
    Tensor x(B, C, 1), weight(taps, C, 2), bias(1, C, 3), pre(B, C, 4), dpre(B, C, 7), dx(B, C, 9),
        dtaps(taps, C, 10), dbias(1, C, 11);
    zero({&dtaps, &dbias});
    const auto loss = [&] {
      depthwise_forward_ref<double>(
          {shape, rows_in<double>(x, T), weight.exact(), bias.exact(), rows_out<double>(pre, T), {}}, 0, B);
      return dot(pre, dpre);
    };
    depthwise_backward_ref<double>({shape,
                                    rows_in<double>(x, T),
                                    rows_in<double>(dpre, T),
                                    weight.exact(),
                                    {},
                                    rows_out<double>(dx, T),
                                    dtaps.exact(),
                                    dbias.exact()},
                                   0, B);
    expect_gradients("depthwise", loss, {{&x, &dx}, {&weight, &dtaps}, {&bias, &dbias}},
                     {"x", "taps", "bias"});
  }
}

TEST(Headwise, TheDefinitionHasTheGradientsOfItsForward) {
  HeadwiseProblem p({2, 3, 8, 4});
  const auto loss = [&] {
    headwise_forward_ref(p.forward<double>(), 0, p.rows);
    return dot(p.q, p.dq) + dot(p.k, p.dk) + dot(p.v, p.dv);
  };
  zero({&p.da, &p.swq, &p.swk, &p.swv, &p.sbq, &p.sbk, &p.sbv});
  headwise_backward_ref(p.backward<double>(), 0, p.rows);
  expect_gradients("headwise", loss,
                   {{&p.a, &p.da},
                    {&p.x, &p.dx},
                    {&p.wq, &p.swq},
                    {&p.wk, &p.swk},
                    {&p.wv, &p.swv},
                    {&p.bq, &p.sbq},
                    {&p.bk, &p.sbk},
                    {&p.bv, &p.sbv}},
                   {"a", "x", "wq", "wk", "wv", "bq", "bk", "bv"});
}

}  // namespace
}  // namespace tessera::kernels
