#include "kernels/mlstm_mixer/mlstm_mixer.h"

#include <cmath>
#include <functional>
#include <span>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/mlstm/mlstm_ref.h"
#include "kernels/mlstm_mixer/mlstm_mixer_cases.h"
#include "kernels/mlstm_mixer/parts.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::kMixerCases;
using testing::kMixerExtremeGates;
using testing::kMixerLongCases;
using testing::largest;
using testing::MixerVectors;
using testing::normal;
using Case = testing::MixerCase;
using Problem = testing::MixerProblem;
using Doubles = std::vector<double>;
using ExactParameters = MlstmMixerParametersOf<Doubles>;

// Computes the mixer in double from its formulas, with physically flipped tokens: y (B,T,C) from u (B,T,2C).
Doubles definition(const Case& c, const Doubles& u, const ExactParameters& p) {
  const int64_t T = c.rows * c.columns, C = c.channels, H = c.heads, D = C / H;
  const int64_t taps = c.causal ? c.kernel : c.kernel * c.kernel, half = (c.kernel - 1) / 2;
  const auto or_null = [](const Doubles& v) { return v.empty() ? nullptr : v.data(); };
  Doubles tap_major(taps * C), lanes[3];
  for (int64_t i = 0; i < C; ++i)
    for (int64_t t = 0; t < taps; ++t) tap_major[t * C + i] = p.conv_weight[i * taps + t];
  const Doubles* const projections[] = {&p.q_weight, &p.k_weight, &p.v_weight};
  for (int which = 0; which < 3; ++which) {
    lanes[which].resize(4 * C);
    for (int64_t i = 0; i < C; ++i)
      for (int64_t d = 0; d < 4; ++d) lanes[which][d * C + i] = (*projections[which])[i * 4 + d];
  }
  Doubles out(c.batch * T * C);
  for (int64_t b = 0; b < c.batch; ++b) {
    const auto token = [&](int64_t t) { return c.reverse ? T - 1 - t : t; };
    Doubles x(T * C), z(T * C), a(T * C), q(T * C), k(T * C), v(T * C), h(T * C), y(T * C);
    const int64_t G = 2 * H;
    Doubles gates(T * G);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t i = 0; i < C; ++i) {
        x[t * C + i] = u[(b * T + token(t)) * 2 * C + i];
        z[t * C + i] = u[(b * T + token(t)) * 2 * C + C + i];
      }
    const auto in = [&](const Doubles& d) { return TokenView<const double*>{d.data(), 0, C}; };
    const auto to = [&](Doubles& d) { return TokenView<double*>{d.data(), 0, C}; };
    const DepthwiseShape conv = c.causal
                                    ? DepthwiseShape{1, 1, T, C, 1, c.kernel, 0, c.kernel - 1}
                                    : DepthwiseShape{1, c.rows, c.columns, C, c.kernel, c.kernel, half, half};
    depthwise_forward_ref<double>({conv, in(x), tap_major.data(), or_null(p.conv_bias), {}, to(a)}, 0, T);
    headwise_forward_ref<double>({T,
                                  C,
                                  in(a),
                                  in(x),
                                  {lanes[0].data(), lanes[1].data(), lanes[2].data(), C, or_null(p.q_bias),
                                   or_null(p.k_bias), or_null(p.v_bias)},
                                  to(q),
                                  to(k),
                                  to(v)},
                                 0, T);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t g = 0; g < 2 * H; ++g) {
        const Doubles& weight = g < H ? p.input_weight : p.forget_weight;
        double& gate = gates[t * G + g];
        gate = (g < H ? p.input_bias : p.forget_bias)[g % H];
        for (int64_t i = 0; i < C; ++i) {
          const double* row = weight.data() + g % H * 3 * C + i;
          gate += row[0] * q[t * C + i] + row[C] * k[t * C + i] + row[2 * C] * v[t * C + i];
        }
      }
    for (int64_t head = 0; head < H; ++head) {
      MlstmHead<double> cell;
      cell.tokens = T, cell.key_dim = cell.value_dim = D, cell.eps = 1e-6f;
      for (int64_t t = 0; t < T; ++t) {
        for (auto [dest, from] : {std::pair{&cell.q, &q}, {&cell.k, &k}, {&cell.v, &v}})
          dest->insert(dest->end(), from->begin() + t * C + head * D, from->begin() + t * C + (head + 1) * D);
        cell.igate.push_back(gates[t * G + head]), cell.fgate.push_back(gates[t * G + H + head]);
      }
      const auto result = mlstm_head_forward(cell);
      for (int64_t t = 0; t < T; ++t) std::copy_n(result.h.begin() + t * D, D, h.begin() + t * C + head * D);
    }
    head_norm_forward_ref<double>({T,
                                   C,
                                   H,
                                   double(1e-5f),
                                   in(h),
                                   in(a),
                                   in(z),
                                   {p.norm_weight.data(), or_null(p.norm_bias), p.skip.data()},
                                   to(y)},
                                  0, T);
    for (int64_t t = 0; t < T; ++t) std::copy_n(y.begin() + t * C, C, out.begin() + (b * T + token(t)) * C);
  }
  return out;
}

Doubles dense_u(const Problem& p) {
  Doubles u;
  const int64_t C = p.c.channels;
  for (int64_t n = 0; n < p.c.batch * p.T; ++n)
    for (int64_t i = 0; i < 2 * C; ++i) u.push_back(p.u.get(n * p.u_row() + i));
  return u;
}

ExactParameters doubles(const MixerVectors& from) {
  ExactParameters to;
  visit_mixer_parameters(
      {},
      [](const char*, bool, const ParameterShape&, const auto& v, Doubles& exact) {
        exact.assign(v.begin(), v.end());
      },
      from, to);
  return to;
}

// The parameters in the order of the table.
template <class T>
struct NamedParameter {
  const char* name;
  T* values;
};
template <class T>
std::vector<NamedParameter<T>> list_of(MlstmMixerParametersOf<T>& p) {
  std::vector<NamedParameter<T>> list;
  visit_mixer_parameters(
      {},
      [&](const char* name, bool, const ParameterShape&, T& values) {
        list.push_back({name, &values});
      },
      p);
  return list;
}

// Runs body with each implementation, the best one also with 2 threads.
void for_each_way(const std::function<void(const std::string&)>& body) {
  const Isa before = active_isa();
  const int threads = num_threads();
  for (const auto& entry : mixer_table()) {
    if (entry.isa > machine().best) continue;
    force_isa(entry.isa);
    for (int count : {1, 2}) {
      if (count > 1 && entry.isa != machine().best) continue;
      set_num_threads(count);
      body(text(name_of(entry.isa), " ", count, " threads"));
    }
  }
  force_isa(before);
  set_num_threads(threads);
}

double root_mean_square(const Doubles& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(1, values.size())));
}

// In float, u to y has some forty roundings, ten times that in rows with a nearly cancelling sum. In
// bfloat16, a and y are rounded. If products of bfloat16 pairs are faster, so are the weights of the
// projections, gates and cell. Each alone adds some 0.002, several times that in nearly cancelling rows, on
// every instruction set due to a alone. (ops/mlstm_mixer_test.cpp compares with the composition in bfloat16.)
struct Allowed {
  double mean_square, largest;
};
Allowed allowed(const Case& c) {
  if (c.element == Element::f32) return {2e-5, 2e-5};
  return {0.01, 0.03};
}
void expect_the_formula(const Case& c) {
  Problem p(c);
  const Doubles want = definition(c, dense_u(p), doubles(p.parameters));
  for_each_way([&](const std::string& way) {
    p.run();
    const Doubles got = p.values(p.y);
    Doubles errors(got.size());
    std::transform(got.begin(), got.end(), want.begin(), errors.begin(), std::minus<>());
    EXPECT_LE(root_mean_square(errors), allowed(c).mean_square * root_mean_square(want)) << way << " " << c;
    expect_within(got, want, allowed(c).largest * largest(want), text(way, " ", c), c.channels);
  });
}

TEST(MlstmMixer, ForwardIsTheFormula) {
  for (const Case& c : kMixerCases) expect_the_formula(c);
}

TEST(MlstmMixer, InBfloat16ForwardIsTheFormulaAsExactAs) {
  for (const auto& cases : {std::span<const Case>(kMixerCases), std::span<const Case>(kMixerLongCases)})
    for (Case c : cases) {
      c.element = Element::bf16, c.saves = false;
      expect_the_formula(c);
    }
}

TEST(MlstmMixer, GatesToBothSidesOfWhatAFloatsExponentHolds) {
  for (const Case& c : kMixerExtremeGates) {
    expect_the_formula(c);
    Problem p(c);
    for_each_way([&](const std::string& way) {
      p.run();
      for (const double value : p.values(p.du)) ASSERT_TRUE(std::isfinite(value)) << way << " " << c;
    });
  }
}

// With closed forget gates, the cell remembers one token. The end of a long sequence then equals a short one
// that also covers the convolution's reach.
TEST(MlstmMixer, TheEndOfALongSequenceIsThatOfAShortOne) {
  constexpr int64_t kShort = 80, kLong = 16384, kCompared = 64;
  Problem whole({1, 1, kLong, 16, 2, 4, true, false, true, false}),
      end({1, 1, kShort, 16, 2, 4, true, false, true, false});
  for (Problem* p : {&whole, &end}) p->parameters.forget_bias.assign(p->parameters.forget_bias.size(), -40);
  for (int64_t i = 0; i < end.u.count(); ++i) end.u.set(i, whole.u.get((kLong - kShort) * whole.u_row() + i));
  for_each_way([&](const std::string& way) {
    if (way.starts_with("reference")) return;  // quadratic
    whole.run(), end.run();
    const Doubles all = whole.values(whole.y), tail = end.values(end.y);
    for (const double value : whole.values(whole.du)) ASSERT_TRUE(std::isfinite(value)) << way;
    expect_within({all.end() - kCompared * 16, all.end()}, {tail.end() - kCompared * 16, tail.end()},
                  2e-5 * largest(tail), way, 16);
  });
}

TEST(MlstmMixer, PiecesOfALongSequenceAreTheFormulaAsExactAs) {
  for (const Case& c : kMixerLongCases) expect_the_formula(c);
}

// Forward keeps values per piece; backward computes them over the whole sequence at once.
TEST(MlstmMixer, BackwardOfPiecesIsBackwardOfTheWholeAsExactAs) {
  for (const Case& c : kMixerLongCases) {
    Case recomputed = c;
    recomputed.saves = false;
    Problem kept(c), whole(recomputed);
    for_each_way([&](const std::string& way) {
      kept.run(), whole.run();
      const Doubles want = whole.values(whole.du);
      // The two cut the sequence at different places: as many roundings again. bfloat16: one rounding of du
      // itself.
      const double tolerance = (c.element == Element::bf16 ? 0.008 : 2e-5) * largest(want);
      expect_within(kept.values(kept.du), want, tolerance, text(way, " ", c), 2 * c.channels);
    });
  }
}

// A forward pass to be recomputed has the same bits as one that keeps its results.
TEST(MlstmMixer, WhatIsComputedAgainForGradientsIsTheSame) {
  Case c{2, 6, 6, 64, 4, 3};
  c.element = Element::bf16;
  Problem kept(c);
  c.saves = false;
  Problem again(c);
  mlstm_mixer_forward(kept.forward());
  mlstm_mixer_forward(again.forward());
  EXPECT_EQ(again.values(again.y), kept.values(kept.y));
}

// The loss sum(y dy) along random directions, one tensor at a time. Its slope by central differences of the
// formula in double equals the product of direction and gradient.
void expect_the_slopes(const Case& c) {
  Problem p(c);
  const Doubles u = dense_u(p), dy = p.values(p.dy);
  ExactParameters parameters = doubles(p.parameters);
  const auto names = list_of(parameters);
  const size_t count = names.size();
  const auto loss = [&](const Doubles& at_u, const ExactParameters& at) {
    const Doubles y = definition(c, at_u, at);
    double total = 0;
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
    return total;
  };
  constexpr double kStep = 1e-5;
  std::vector<Doubles> directions;
  std::vector<double> slopes;
  for (size_t i = 0; i <= count; ++i) {
    const size_t size = i < count ? names[i].values->size() : u.size();
    const auto random = normal(static_cast<int64_t>(size), 50 + i);
    directions.emplace_back(random.begin(), random.end());
    const auto moved = [&](double by) {
      ExactParameters at = parameters;
      Doubles at_u = u;
      Doubles& target = i < count ? *list_of(at)[i].values : at_u;
      for (size_t j = 0; j < size; ++j) target[j] += by * directions[i][j];
      return loss(at_u, at);
    };
    slopes.push_back(size ? (moved(kStep) - moved(-kStep)) / (2 * kStep) : 0);
  }
  for_each_way([&](const std::string& way) {
    p.run();
    std::vector<double> got(count + 1), sizes(count + 1);
    ExactParameters gradients = doubles(p.gradients);
    const auto of_parameters = list_of(gradients);
    for (size_t i = 0; i <= count; ++i) {
      const Doubles gradient = i < count ? *of_parameters[i].values : p.values(p.du);
      for (size_t j = 0; j < directions[i].size(); ++j) {
        got[i] += directions[i][j] * gradient[j];
        sizes[i] += std::pow(directions[i][j] * gradient[j], 2);
      }
    }
    // Some gradients nearly cancel: the input gates' bias has zero gradient except for eps, and with one
    // token all gates do. All sums then show some fifteen roundings of the largest gradient.
    const double most = std::sqrt(largest(sizes));
    for (size_t i = 0; i <= count; ++i) {
      const double tolerance =
          (c.element == Element::bf16 ? 4e-2 : 3e-5) * (std::sqrt(sizes[i]) + 0.03 * most);
      EXPECT_NEAR(got[i], slopes[i], tolerance)
          << way << " " << c << " " << (i < count ? names[i].name : "u");
    }
  });
}

// In bfloat16 only with biases: otherwise rows with a nearly cancelling sum magnify the rounding of a without
// bound.
TEST(MlstmMixer, BackwardHasTheSlopesOfTheFormula) {
  for (Case c : kMixerCases) {
    expect_the_slopes(c);
    c.element = Element::bf16;
    if (c.biases) expect_the_slopes(c);
  }
}

void expect_a_nan_stays(Element element) {
  for_each_way([element](const std::string& way) {
    Case c{3, 4, 4, 16, 2, 3};
    c.element = element;
    Problem clean(c), spoilt(c);
    spoilt.u.set((1 * 16 + 5) * spoilt.u_row() + 7, std::nan(""));
    clean.run(), spoilt.run();
    const int64_t size = 16 * 16;
    for (int64_t i = 0; i < 3 * 2 * size; ++i) {
      if (i < 3 * size && i / size != 1) {
        ASSERT_EQ(spoilt.y.get(i), clean.y.get(i)) << way << " " << i;
      }
      if (i / (2 * size) != 1) {
        ASSERT_EQ(spoilt.du.get(i), clean.du.get(i)) << way << " " << i;
      }
    }
  });
}

TEST(MlstmMixer, ANanStaysInItsSample) {
  for (const Element element : {Element::f32, Element::bf16}) expect_a_nan_stays(element);
}

TEST(MlstmMixer, AnEmptyBatchHasZeroGradients) {
  Problem p({0, 4, 4, 16, 2, 3});
  p.run();
  for (const auto& gradient : list_of(p.gradients))
    for (float value : *gradient.values) ASSERT_EQ(value, 0) << gradient.name;
}

TEST(MlstmMixer, RefusesWhatItCannotCompute) {
  Problem p({1, 4, 4, 16, 2, 3});
  MlstmMixerForward call{p.shape(), {}, {}, {}, {}};
  call.shape.channels = 18;
  EXPECT_THROW(mlstm_mixer_forward(call), Error);
  call.shape = p.shape();
  call.shape.kernel = 2;
  EXPECT_THROW(mlstm_mixer_forward(call), Error);
  call.shape = p.shape();
  call.saved.h = p.h.data();
  EXPECT_THROW(mlstm_mixer_forward(call), Error);
  call = p.forward();
  call.y.element = Element::bf16;
  EXPECT_THROW(mlstm_mixer_forward(call), Error);
  MlstmMixerBackward back{p.shape(), call.u, {p.dy.data(), Element::bf16, 0, 0}, {}, {}, {p.du.data()}, {}};
  EXPECT_THROW(mlstm_mixer_backward(back), Error);
}

}  // namespace
}  // namespace tessera::kernels
