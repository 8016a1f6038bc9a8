#include "kernels/mlstm_mixer/mlstm_mixer.h"

#include <cmath>
#include <functional>
#include <memory>
#include <span>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/mlstm/mlstm_ref.h"
#include "kernels/mlstm_mixer/parts_ref.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::expect_within;
using testing::Guarded;
using testing::largest;
using testing::normal;
using Doubles = std::vector<double>;

struct Case {
  int64_t batch, rows, columns, channels, heads, kernel;
  bool causal = false, reverse = false, biases = true, saves = true;
  Element element = Element::f32;
  double gates = 0;  // their biases lie between -gates and gates, where it is not 0
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.batch << " grid " << c.rows << "x" << c.columns << " C" << c.channels << " H"
             << c.heads << " kernel " << c.kernel << (c.causal ? " causal" : "")
             << (c.reverse ? " reverse" : "") << (c.biases ? "" : " no biases")
             << (c.saves ? "" : " recomputed") << (c.element == Element::bf16 ? " bf16" : "") << " gates "
             << c.gates;
}
// Batches below and above the number of threads, published and odd sizes.
const Case kCases[] = {{5, 7, 7, 32, 4, 3},
                       {1, 8, 8, 192, 4, 3, false, true},
                       {1, 10, 10, 192, 4, 3, false, true},  // large enough for threads to share it
                       {3, 4, 6, 24, 2, 3, false, true, false},
                       {2, 1, 19, 20, 1, 4, true, false},
                       {4, 1, 33, 48, 3, 4, true, true, true, false},
                       {1, 3, 5, 60, 3, 5, false, true, true, false},
                       {2, 3, 3, 24, 4, 3},  // six channels a head
                       {3, 6, 6, 64, 4, 3, false, true, true, true, Element::bf16},
                       {1, 2, 2, 4, 4, 3},
                       {2, 1, 1, 16, 2, 3},
                       {1, 1, 1, 20, 1, 4, true, true}};
const Case kExtremeGates[] = {{2, 6, 6, 32, 4, 3, false, false, true, true, Element::f32, 40},
                              {1, 1, 50, 64, 8, 4, true, true, true, true, Element::f32, 40},
                              {3, 1, 1, 16, 4, 4, true, false, true, false, Element::f32, 40},
                              {1, 9, 9, 48, 4, 3, false, true, true, true, Element::bf16, 40}};
// Long enough for forward to take them in pieces, of 192 to 448 tokens by the width and the threads.
const Case kLongCases[] = {{1, 31, 16, 192, 4, 3},
                           {2, 30, 13, 384, 4, 3, false, true, true, true, Element::bf16},
                           {1, 20, 15, 192, 4, 3, false, true, true, true, Element::bf16},
                           {1, 1, 470, 384, 4, 4, true, false},
                           {1, 1, 460, 384, 4, 4, true, true},
                           {2, 1, 300, 384, 4, 4, true, false, true, true, Element::bf16}};

// The parameters in the order of MlstmMixerParametersOf, all in one list.
constexpr const char* kNames[] = {"conv_weight",   "conv_bias",   "q_weight",    "q_bias",       "k_weight",
                                  "k_bias",        "v_weight",    "v_bias",      "input_weight", "input_bias",
                                  "forget_weight", "forget_bias", "norm_weight", "norm_bias",    "skip"};
constexpr size_t kCount = std::size(kNames);
static_assert(sizeof(MlstmMixerParameters) == kCount * sizeof(float*));

template <class Struct, class Vectors>
Struct pointers(Vectors& vectors) {
  Struct s;
  auto* fields = reinterpret_cast<decltype(s.skip)*>(&s);
  for (size_t i = 0; i < kCount; ++i) fields[i] = vectors[i].empty() ? nullptr : vectors[i].data();
  return s;
}

struct Problem {
  explicit Problem(const Case& config)
      : c(config),
        T(c.rows * c.columns),
        u(c.element, c.batch * T * (2 * c.channels + 3)),
        y(c.element, c.batch * T * c.channels),
        dy(c.element, c.batch * T * c.channels),
        du(c.element, c.batch * T * 2 * c.channels) {
    const int64_t C = c.channels, H = c.heads, taps = c.causal ? c.kernel : c.kernel * c.kernel;
    const int64_t sizes[kCount] = {taps * C,  C, 4 * C,     C, 4 * C, C, 4 * C, C,
                                   3 * C * H, H, 3 * C * H, H, C,     C, C};
    for (size_t i = 0; i < kCount; ++i) {
      const std::string name = kNames[i];
      const bool gate = name.starts_with("input") || name.starts_with("forget");
      const bool optional = name == "conv_bias" || name == "q_bias" || name == "k_bias" || name == "v_bias" ||
                            name == "norm_bias";
      // In bfloat16 queries and keys with a mean keep row sums away from zero, where the cell magnifies its
      // roundings.
      const bool meant = c.element == Element::bf16 && (name == "q_bias" || name == "k_bias");
      const double mean = name == "forget_bias" || meant ? 2 : 0.2;
      const double deviation =
          gate && name.ends_with("weight") ? 1 / std::sqrt(3.0 * static_cast<double>(C)) : 0.5;
      parameters.push_back(optional && !c.biases ? std::vector<float>{}
                                                 : normal(sizes[i], 10 + i, mean, deviation));
      if (gate && name.ends_with("bias") && c.gates > 0)
        parameters.back() = testing::uniform(sizes[i], 10 + i, -c.gates, c.gates);
      gradients.push_back(parameters.back());
    }
    const auto values = normal(u.count(), 1), weights = normal(dy.count(), 2);
    for (int64_t i = 0; i < u.count(); ++i) u.set(i, values[i]);
    for (int64_t i = 0; i < dy.count(); ++i) dy.set(i, weights[i]);
    h.resize(c.batch * T * C), normaliser.resize(c.batch * H * T), row_sign = normaliser;
  }
  MlstmMixerShape shape() const {
    return {c.batch, c.rows, c.columns, c.channels, c.heads, c.kernel, c.causal, c.reverse, 1e-5f, 1e-6f};
  }
  MlstmMixerSaved saved() {
    if (!c.saves) return {};
    return {h.data(), normaliser.data(), row_sign.data()};
  }
  int64_t u_row() const { return 2 * c.channels + 3; }
  MlstmMixerForward forward() {
    const int64_t C = c.channels;
    return {shape(),
            {u.data(), c.element, T * u_row(), u_row()},
            pointers<MlstmMixerParameters>(parameters),
            {y.data(), c.element, T * C, C},
            saved()};
  }
  void run() {
    const int64_t C = c.channels;
    mlstm_mixer_forward(forward());
    const StoredRows u_rows{u.data(), c.element, T * u_row(), u_row()},
        dy_rows{dy.data(), c.element, T * C, C};
    const auto p = pointers<MlstmMixerParameters>(parameters);
    mlstm_mixer_backward({shape(),
                          u_rows,
                          dy_rows,
                          p,
                          saved(),
                          {du.data(), c.element, T * 2 * C, 2 * C},
                          pointers<MlstmMixerGradients>(gradients)});
  }
  Doubles values(const Guarded& from) const {
    Doubles out;
    for (int64_t i = 0; i < from.count(); ++i) out.push_back(from.get(i));
    return out;
  }

  Case c;
  int64_t T;
  Guarded u, y, dy, du;
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<float> h, normaliser, row_sign;
};

// The mixer written down in double from its formulas, with tokens really flipped: y (B,T,C) from u (B,T,2C).
Doubles definition(const Case& c, const Doubles& u, const std::vector<Doubles>& p) {
  const int64_t T = c.rows * c.columns, C = c.channels, H = c.heads, D = C / H;
  const int64_t taps = c.causal ? c.kernel : c.kernel * c.kernel, half = (c.kernel - 1) / 2;
  const auto parameter = [&](const char* name) -> const Doubles& {
    return p[std::find(std::begin(kNames), std::end(kNames), std::string(name)) - std::begin(kNames)];
  };
  const auto or_null = [](const Doubles& v) { return v.empty() ? nullptr : v.data(); };
  Doubles tap_major(taps * C), lanes[3];
  for (int64_t i = 0; i < C; ++i)
    for (int64_t t = 0; t < taps; ++t) tap_major[t * C + i] = parameter("conv_weight")[i * taps + t];
  const char* projections[] = {"q_weight", "k_weight", "v_weight"};
  for (int which = 0; which < 3; ++which) {
    lanes[which].resize(4 * C);
    for (int64_t i = 0; i < C; ++i)
      for (int64_t d = 0; d < 4; ++d) lanes[which][d * C + i] = parameter(projections[which])[i * 4 + d];
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
    depthwise_forward_ref<double>({conv, in(x), tap_major.data(), or_null(parameter("conv_bias")), {}, to(a)},
                                  0, T);
    headwise_forward_ref<double>(
        {T,
         C,
         in(a),
         in(x),
         {lanes[0].data(), lanes[1].data(), lanes[2].data(), C, or_null(parameter("q_bias")),
          or_null(parameter("k_bias")), or_null(parameter("v_bias"))},
         to(q),
         to(k),
         to(v)},
        0, T);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t g = 0; g < 2 * H; ++g) {
        const Doubles& weight = parameter(g < H ? "input_weight" : "forget_weight");
        double& gate = gates[t * G + g];
        gate = parameter(g < H ? "input_bias" : "forget_bias")[g % H];
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
    head_norm_forward_ref<double>(
        {T,
         C,
         H,
         double(1e-5f),
         in(h),
         in(a),
         in(z),
         {parameter("norm_weight").data(), or_null(parameter("norm_bias")), parameter("skip").data()},
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

std::vector<Doubles> doubles(const std::vector<std::vector<float>>& from) {
  std::vector<Doubles> to;
  for (const auto& v : from) to.emplace_back(v.begin(), v.end());
  return to;
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

// In float there are some forty roundings from u to y, ten times that in rows whose sum nearly cancels. In
// bfloat16 a and y are rounded to it, and where products of such pairs are the faster ones also the weights
// of the projections, of the gates and of the cell: each by itself some 0.002, in a row whose sum nearly
// cancels several times as much, on every instruction set since a alone does it. (ops/mlstm_mixer_test.cpp
// compares with the composition in bfloat16.)
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
  for (const Case& c : kCases) expect_the_formula(c);
}

TEST(MlstmMixer, InBfloat16ForwardIsTheFormulaAsExactAs) {
  for (const auto& cases : {std::span<const Case>(kCases), std::span<const Case>(kLongCases)})
    for (Case c : cases) {
      c.element = Element::bf16, c.saves = false;
      expect_the_formula(c);
    }
}

TEST(MlstmMixer, GatesToBothSidesOfWhatAFloatsExponentHolds) {
  for (const Case& c : kExtremeGates) {
    expect_the_formula(c);
    Problem p(c);
    for_each_way([&](const std::string& way) {
      p.run();
      for (const double value : p.values(p.du)) ASSERT_TRUE(std::isfinite(value)) << way << " " << c;
    });
  }
}

// With the forget gates shut the cell remembers one token: the end of a long sequence is what a short one
// gives that holds the convolution's reach as well.
TEST(MlstmMixer, TheEndOfALongSequenceIsThatOfAShortOne) {
  constexpr int64_t kShort = 80, kLong = 16384, kCompared = 64;
  Problem whole({1, 1, kLong, 16, 2, 4, true, false, true, false}),
      end({1, 1, kShort, 16, 2, 4, true, false, true, false});
  for (Problem* p : {&whole, &end})
    for (size_t i = 0; i < kCount; ++i)
      if (std::string(kNames[i]) == "forget_bias") p->parameters[i].assign(p->parameters[i].size(), -40);
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
  for (const Case& c : kLongCases) expect_the_formula(c);
}

// What forward keeps of its pieces is what backward computes for itself, over the whole sequence at once.
TEST(MlstmMixer, BackwardOfPiecesIsBackwardOfTheWholeAsExactAs) {
  for (const Case& c : kLongCases) {
    Case recomputed = c;
    recomputed.saves = false;
    Problem kept(c), whole(recomputed);
    for_each_way([&](const std::string& way) {
      kept.run(), whole.run();
      const Doubles want = whole.values(whole.du);
      // The two cut the sequence at other places: as many roundings again. bfloat16: one of du itself.
      const double tolerance = (c.element == Element::bf16 ? 0.008 : 2e-5) * largest(want);
      expect_within(kept.values(kept.du), want, tolerance, text(way, " ", c), 2 * c.channels);
    });
  }
}

// A forward pass that is to be computed again gives the bits of the one that keeps.
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

// The loss sum(y dy) along random directions, one tensor at a time: the slope by central differences of the
// formula in double is the product of the direction with the gradient.
void expect_the_slopes(const Case& c) {
  Problem p(c);
  const Doubles u = dense_u(p), dy = p.values(p.dy);
  const std::vector<Doubles> parameters = doubles(p.parameters);
  const auto loss = [&](const Doubles& at_u, const std::vector<Doubles>& at) {
    const Doubles y = definition(c, at_u, at);
    double total = 0;
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
    return total;
  };
  constexpr double kStep = 1e-5;
  std::vector<Doubles> directions;
  std::vector<double> slopes;
  for (size_t i = 0; i <= kCount; ++i) {
    const size_t size = i < kCount ? parameters[i].size() : u.size();
    const auto random = normal(static_cast<int64_t>(size), 50 + i);
    directions.emplace_back(random.begin(), random.end());
    const auto moved = [&](double by) {
      std::vector<Doubles> at = parameters;
      Doubles at_u = u;
      Doubles& target = i < kCount ? at[i] : at_u;
      for (size_t j = 0; j < size; ++j) target[j] += by * directions[i][j];
      return loss(at_u, at);
    };
    slopes.push_back(size ? (moved(kStep) - moved(-kStep)) / (2 * kStep) : 0);
  }
  for_each_way([&](const std::string& way) {
    p.run();
    std::vector<double> got(kCount + 1), sizes(kCount + 1);
    for (size_t i = 0; i <= kCount; ++i) {
      const Doubles gradient =
          i < kCount ? Doubles(p.gradients[i].begin(), p.gradients[i].end()) : p.values(p.du);
      for (size_t j = 0; j < directions[i].size(); ++j) {
        got[i] += directions[i][j] * gradient[j];
        sizes[i] += std::pow(directions[i][j] * gradient[j], 2);
      }
    }
    // Some gradients nearly cancel: that of the input gates' bias is zero but for eps, and with one token
    // those of all gates are. All sums then show some fifteen roundings of the largest gradient.
    const double most = std::sqrt(largest(sizes));
    for (size_t i = 0; i <= kCount; ++i) {
      const double tolerance =
          (c.element == Element::bf16 ? 4e-2 : 3e-5) * (std::sqrt(sizes[i]) + 0.03 * most);
      EXPECT_NEAR(got[i], slopes[i], tolerance) << way << " " << c << " " << (i < kCount ? kNames[i] : "u");
    }
  });
}

// In bfloat16 only with biases: without them rows whose sum nearly cancels turn the rounding of a into any
// number.
TEST(MlstmMixer, BackwardHasTheSlopesOfTheFormula) {
  for (Case c : kCases) {
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
  for (const auto& gradient : p.gradients)
    for (float value : gradient) ASSERT_EQ(value, 0);
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
