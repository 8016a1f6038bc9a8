#include "kernels/mlstm_mixer/parts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "core/error.h"
#include "kernels/mlstm_mixer/parts_ref.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::for_each_implementation;
using testing::Guarded;
using testing::largest;
using testing::normal;

// A tensor of floats with guards for the fast kernels, and the same numbers in double for the definition.
// Rows are `gap` floats apart beyond their width.
class Tensor {
 public:
  Tensor(int64_t rows, int64_t width, uint64_t seed, int64_t gap = 0, double mean = 0, double deviation = 1)
      : rows_(rows),
        width_(width),
        stride_(width + gap),
        single_(Element::f32, rows * stride_, 1),
        double_(rows * stride_) {
    const auto values = normal(rows * stride_, seed, mean, deviation);
    for (int64_t i = 0; i < rows * stride_; ++i) single_.set(i, values[i]), double_[i] = values[i];
    start_ = double_;
  }
  void reset() {
    for (size_t i = 0; i < start_.size(); ++i) single_.set(static_cast<int64_t>(i), start_[i]);
    double_ = start_;
  }
  float* single() { return static_cast<float*>(single_.data()); }
  double* exact() { return double_.data(); }
  int64_t stride() const { return stride_; }
  int64_t width() const { return width_; }
  std::vector<double> got() const {
    std::vector<double> values;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < width_; ++c) values.push_back(single_.get(r * stride_ + c));
    return values;
  }
  std::vector<double> want() const {
    std::vector<double> values;
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < width_; ++c) values.push_back(double_[r * stride_ + c]);
    return values;
  }
  // Whether what lies between the rows is as it was.
  bool gaps_intact() const {
    for (int64_t i = 0; i < rows_ * stride_; ++i)
      if (i % stride_ >= width_ && static_cast<float>(single_.get(i)) != static_cast<float>(start_[i]))
        return false;
    return true;
  }

 private:
  int64_t rows_, width_, stride_;
  Guarded single_;
  std::vector<double> double_, start_;
};

template <class Real>
auto rows_in(Tensor& t, int64_t tokens) {
  if constexpr (std::is_same_v<Real, float>)
    return TokenView<const float*>{t.single(), tokens * t.stride(), t.stride()};
  else
    return TokenView<const double*>{t.exact(), tokens * t.stride(), t.stride()};
}
template <class Real>
auto rows_out(Tensor& t, int64_t tokens) {
  if constexpr (std::is_same_v<Real, float>)
    return TokenView<float*>{t.single(), tokens * t.stride(), t.stride()};
  else
    return TokenView<double*>{t.exact(), tokens * t.stride(), t.stride()};
}
template <class Real>
Real* data(Tensor& t) {
  if constexpr (std::is_same_v<Real, float>)
    return t.single();
  else
    return t.exact();
}

struct Checked {
  const char* name;
  Tensor* tensor;
  double roundings;  // of the largest number that enters a sum
};

// Runs the definition in double once, then every implementation from the same start, whole and in two pieces;
// the results may be off by so many roundings (2^-24) of the largest result.
void compare(const std::string& what, int64_t tokens, const std::vector<Checked>& outputs,
             const std::function<void(int64_t, int64_t)>& definition,
             const std::function<void(const MixerFunctions&, int64_t, int64_t)>& fast) {
  for (const Checked& out : outputs) out.tensor->reset();
  definition(0, tokens);
  std::vector<std::vector<double>> want;
  for (const Checked& out : outputs) want.push_back(out.tensor->want());
  for_each_implementation(mixer_table(), [&](const std::string& isa, const MixerFunctions& functions) {
    for (int64_t cut : {tokens, tokens / 3}) {
      for (const Checked& out : outputs) out.tensor->reset();
      fast(functions, 0, cut);
      fast(functions, cut, tokens);
      for (size_t i = 0; i < outputs.size(); ++i) {
        expect_within(outputs[i].tensor->got(), want[i],
                      outputs[i].roundings * 6e-8 * largest(want[i]) + 1e-12,
                      text(isa, " ", what, " cut ", cut, " ", outputs[i].name), outputs[i].tensor->width());
        EXPECT_TRUE(outputs[i].tensor->gaps_intact()) << isa << " " << what << " " << outputs[i].name;
      }
    }
  });
}

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

TEST(Depthwise, EveryImplementationMatchesTheDefinition) {
  for (const Grid& g : kGrids) {
    const DepthwiseShape shape{g.batch,          g.rows,    g.columns,  g.channels, g.kernel_rows,
                               g.kernel_columns, g.pad_top, g.pad_left, g.reverse};
    const int64_t T = g.rows * g.columns, B = g.batch * T, C = g.channels,
                  taps = g.kernel_rows * g.kernel_columns;
    Tensor x(B, C, 1, 5), weight(taps, C, 2), bias(1, C, 3), pre(B, C, 4, 3), out(B, C, 5), dpre(B, C, 7),
        add(B, C, 8), dx(B, C, 9, 1), dtaps(taps, C, 10), dbias(1, C, 11);
    const std::string what = text("grid ", g.rows, "x", g.columns, " channels ", C, " kernel ", g.kernel_rows,
                                  "x", g.kernel_columns, g.reverse ? " reverse" : "");
    const auto forward = [&]<class Real>(Real) {
      return DepthwiseForwardOf<Real>{shape,
                                      rows_in<Real>(x, T),
                                      data<Real>(weight),
                                      data<Real>(bias),
                                      rows_out<Real>(pre, T),
                                      rows_out<Real>(out, T)};
    };
    // A sum of `taps` products and the bias, then the roundings of silu.
    compare(
        what, B, {{"pre", &pre, taps + 2.0}, {"out", &out, taps + 7.0}},
        [&](int64_t b, int64_t e) { depthwise_forward_ref(forward(0.0), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.depthwise_forward(forward(0.0f), b, e); });
    const auto backward = [&]<class Real>(Real) {
      return DepthwiseBackwardOf<Real>{shape,
                                       rows_in<Real>(x, T),
                                       rows_in<Real>(dpre, T),
                                       data<Real>(weight),
                                       rows_in<Real>(add, T),
                                       rows_out<Real>(dx, T),
                                       data<Real>(dtaps),
                                       data<Real>(dbias)};
    };
    const double sum = 4 * std::sqrt(static_cast<double>(B)) + 4;
    compare(
        what, B, {{"dx", &dx, taps + 3.0}, {"dtaps", &dtaps, sum}, {"dbias", &dbias, sum}},
        [&](int64_t b, int64_t e) { depthwise_backward_ref(backward(0.0), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.depthwise_backward(backward(0.0f), b, e); });
  }
}

struct HeadwiseCase {
  int64_t batch, tokens, channels, gates;
};
const HeadwiseCase kHeadwise[] = {{2, 7, 8, 2},    {1, 1, 4, 2},    {1, 64, 192, 8}, {2, 19, 20, 6},
                                  {1, 33, 48, 16}, {1, 17, 36, 12}, {1, 70, 768, 8}};

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
            rows_in<Real>(a, T),
            rows_in<Real>(x, T),
            weights<Real>(),
            rows_out<Real>(q, T),
            rows_out<Real>(k, T),
            rows_out<Real>(v, T)};
  }
  template <class Real>
  HeadwiseBackwardOf<Real> backward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            rows_in<Real>(a, T),
            rows_in<Real>(x, T),
            rows_in<Real>(dq, T),
            rows_in<Real>(dk, T),
            rows_in<Real>(dv, T),
            weights<Real>(),
            rows_out<Real>(da, T),
            rows_out<Real>(dx, T),
            {data<Real>(swq), data<Real>(swk), data<Real>(swv), swq.stride(), data<Real>(sbq),
             data<Real>(sbk), data<Real>(sbv)}};
  }
  HeadwiseCase c;
  int64_t rows;
  Tensor a, x, wq, wk, wv, bq, bk, bv, q, k, v, dq, dk, dv, da, dx, swq, swk, swv, sbq, sbk, sbv;
};

TEST(Headwise, EveryImplementationMatchesTheDefinition) {
  for (const HeadwiseCase& c : kHeadwise) {
    HeadwiseProblem p(c);
    const std::string what = text("B", c.batch, " T", c.tokens, " C", c.channels);
    compare(
        what, p.rows, {{"q", &p.q, 6}, {"k", &p.k, 6}, {"v", &p.v, 6}},
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

struct GatesProblem {
  explicit GatesProblem(const HeadwiseCase& config)
      : c(config),
        G((c.gates + 7) / 8 * 8),
        rows(c.batch * c.tokens),
        a(rows, c.channels, 1, 3),
        x(rows, c.channels, 2, 1),
        pre(rows, c.channels, 3, 2),
        weight(G, 2 * c.channels, 9),
        bias(1, G, 10),
        gate(rows, G, 14),
        dgate(rows, G, 18),
        da(rows, c.channels, 19),
        dx(rows, c.channels, 20, 3),
        dweight(G, 2 * c.channels, 27),
        dbias(1, G, 28) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t g = c.gates; g < G; ++g) dgate.single()[r * G + g] = 0, dgate.exact()[r * G + g] = 0;
  }
  template <class Real>
  GatesForwardOf<Real> forward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            c.gates,
            rows_in<Real>(a, T),
            rows_in<Real>(x, T),
            data<Real>(weight),
            data<Real>(bias),
            rows_out<Real>(gate, T)};
  }
  template <class Real>
  GatesBackwardOf<Real> backward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            c.gates,
            rows_in<Real>(a, T),
            rows_in<Real>(x, T),
            rows_in<Real>(pre, T),
            data<Real>(weight),
            rows_in<Real>(dgate, T),
            rows_out<Real>(da, T),
            rows_out<Real>(dx, T),
            data<Real>(dweight),
            data<Real>(dbias)};
  }
  HeadwiseCase c;
  int64_t G, rows;
  Tensor a, x, pre, weight, bias, gate, dgate, da, dx, dweight, dbias;
};

TEST(Gates, EveryImplementationMatchesTheDefinition) {
  for (const HeadwiseCase& c : kHeadwise) {
    GatesProblem p(c);
    const std::string what = text("B", c.batch, " T", c.tokens, " C", c.channels, " G", c.gates);
    compare(
        what, p.rows, {{"gate", &p.gate, 2 * std::sqrt(2.0 * static_cast<double>(c.channels)) + 8}},
        [&](int64_t b, int64_t e) { gates_forward_ref(p.forward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.gates_forward(p.forward<float>(), b, e); });
    const double sum = 4 * std::sqrt(static_cast<double>(p.rows)) + 8,
                 gates = 12 + static_cast<double>(c.gates);
    compare(
        what, p.rows,
        {{"da", &p.da, gates + 10},
         {"dx", &p.dx, gates},
         {"dweight", &p.dweight, sum},
         {"dbias", &p.dbias, sum}},
        [&](int64_t b, int64_t e) { gates_backward_ref(p.backward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.gates_backward(p.backward<float>(), b, e); });
  }
}

struct NormCase {
  int64_t batch, tokens, channels, heads;
};
const NormCase kNorms[] = {{2, 5, 8, 2},  {1, 64, 192, 4}, {1, 3, 20, 1},
                           {2, 9, 60, 3}, {1, 7, 768, 4},  {1, 4, 12, 3}};

struct NormProblem {
  explicit NormProblem(const NormCase& config)
      : c(config),
        rows(c.batch * c.tokens),
        h(rows, c.channels, 1, 0, 0.5),
        a(rows, c.channels, 2, 2),
        z(rows, c.channels, 3, 5),
        dy(rows, c.channels, 4, 1),
        scale(1, c.channels, 5),
        bias(1, c.channels, 6),
        skip(1, c.channels, 7),
        y(rows, c.channels, 8, 3),
        dh(rows, c.channels, 9),
        da(rows, c.channels, 10),
        dz(rows, c.channels, 11, 4),
        dscale(1, c.channels, 12),
        dbias(1, c.channels, 13),
        dskip(1, c.channels, 14) {}
  template <class Real>
  HeadNormForwardOf<Real> forward() {
    return {c.tokens,
            c.channels,
            c.heads,
            Real(1e-5),
            rows_in<Real>(h, c.tokens),
            rows_in<Real>(a, c.tokens),
            rows_in<Real>(z, c.tokens),
            {data<Real>(scale), data<Real>(bias), data<Real>(skip)},
            rows_out<Real>(y, c.tokens)};
  }
  template <class Real>
  HeadNormBackwardOf<Real> backward() {
    return {c.tokens,
            c.channels,
            c.heads,
            Real(1e-5),
            rows_in<Real>(h, c.tokens),
            rows_in<Real>(a, c.tokens),
            rows_in<Real>(z, c.tokens),
            rows_in<Real>(dy, c.tokens),
            {data<Real>(scale), data<Real>(bias), data<Real>(skip)},
            rows_out<Real>(dh, c.tokens),
            rows_out<Real>(da, c.tokens),
            rows_out<Real>(dz, c.tokens),
            data<Real>(dscale),
            data<Real>(dbias),
            data<Real>(dskip)};
  }
  NormCase c;
  int64_t rows;
  Tensor h, a, z, dy, scale, bias, skip, y, dh, da, dz, dscale, dbias, dskip;
};

TEST(HeadNorm, EveryImplementationMatchesTheDefinition) {
  for (const NormCase& c : kNorms) {
    NormProblem p(c);
    const std::string what = text("B", c.batch, " T", c.tokens, " C", c.channels, " H", c.heads);
    compare(
        what, p.rows, {{"y", &p.y, 12}},
        [&](int64_t b, int64_t e) { head_norm_forward_ref(p.forward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) {
          f.head_norm_forward(p.forward<float>(), b, e);
        });
    const double sum = 4 * std::sqrt(static_cast<double>(p.rows)) + 12;
    compare(
        what, p.rows,
        {{"dh", &p.dh, 30},
         {"da", &p.da, 12},
         {"dz", &p.dz, 20},
         {"dscale", &p.dscale, sum},
         {"dbias", &p.dbias, sum},
         {"dskip", &p.dskip, sum}},
        [&](int64_t b, int64_t e) { head_norm_backward_ref(p.backward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) {
          f.head_norm_backward(p.backward<float>(), b, e);
        });
  }
}

// Central differences of the definitions in double, for every number of every input. `loss` runs the forward
// and weighs its outputs; `inputs` pairs an input with its gradient.
void expect_gradients(const std::string& what, const std::function<double()>& loss,
                      const std::vector<std::pair<Tensor*, Tensor*>>& inputs,
                      const std::vector<std::string>& names) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& [x, dx] = inputs[i];
    const std::vector<double> gradient = dx->want();
    for (size_t n = 0; n < gradient.size(); ++n) {
      const int64_t width = x->width(),
                    at = static_cast<int64_t>(n) / width * x->stride() + static_cast<int64_t>(n) % width;
      const double was = x->exact()[at], step = 1e-5;
      x->exact()[at] = was + step;
      const double up = loss();
      x->exact()[at] = was - step;
      const double down = loss();
      x->exact()[at] = was;
      ASSERT_NEAR(gradient[n], (up - down) / (2 * step), 1e-8 + 1e-6 * std::abs(gradient[n]))
          << what << " d" << names[i] << "[" << n << "]";
    }
  }
}

double dot(Tensor& a, Tensor& b) {
  const auto x = a.want(), y = b.want();
  double total = 0;
  for (size_t i = 0; i < x.size(); ++i) total += x[i] * y[i];
  return total;
}

void zero(std::initializer_list<Tensor*> tensors) {
  for (Tensor* t : tensors)
    for (size_t i = 0; i < t->want().size() / static_cast<size_t>(t->width()); ++i)
      std::fill_n(t->exact() + static_cast<int64_t>(i) * t->stride(), t->width(), 0.0);
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

// a = silu(pre), and something else that reads a and x.
TEST(Gates, TheDefinitionHasTheGradientsOfItsForward) {
  GatesProblem p({2, 3, 8, 4});
  Tensor of_a(p.rows, 8, 50, 0), of_x(p.rows, 8, 51, 3);
  const auto activate = [&] {
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t c = 0; c < 8; ++c) {
        const double pre = p.pre.exact()[r * p.pre.stride() + c];
        p.a.exact()[r * p.a.stride() + c] = pre / (1 + std::exp(-pre));
      }
  };
  const auto loss = [&] {
    activate();
    gates_forward_ref(p.forward<double>(), 0, p.rows);
    return dot(p.gate, p.dgate) + dot(p.a, of_a) + dot(p.x, of_x);
  };
  activate();
  zero({&p.dweight, &p.dbias});
  for (auto [to, from] : {std::pair{&p.da, &of_a}, {&p.dx, &of_x}})
    std::copy_n(from->exact(), p.rows * from->stride(), to->exact());
  gates_backward_ref(p.backward<double>(), 0, p.rows);
  expect_gradients("gates", loss,
                   {{&p.pre, &p.da}, {&p.x, &p.dx}, {&p.weight, &p.dweight}, {&p.bias, &p.dbias}},
                   {"pre", "x", "weight", "bias"});
}

TEST(HeadNorm, TheDefinitionHasTheGradientsOfItsForward) {
  NormProblem p({1, 3, 12, 3});
  const auto loss = [&] {
    head_norm_forward_ref(p.forward<double>(), 0, p.rows);
    return dot(p.y, p.dy);
  };
  zero({&p.dscale, &p.dbias, &p.dskip});
  head_norm_backward_ref(p.backward<double>(), 0, p.rows);
  expect_gradients("head norm", loss,
                   {{&p.h, &p.dh},
                    {&p.a, &p.da},
                    {&p.z, &p.dz},
                    {&p.scale, &p.dscale},
                    {&p.bias, &p.dbias},
                    {&p.skip, &p.dskip}},
                   {"h", "a", "z", "scale", "bias", "skip"});
}

}  // namespace
}  // namespace tessera::kernels
