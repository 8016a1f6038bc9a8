// The cases that the mixer's test checks and its benchmark times: one type, one way to fill a call.
#pragma once

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "kernels/testing.h"

namespace tessera::kernels::testing {

struct MixerCase {
  int64_t batch, rows, columns, channels, heads, kernel;
  bool causal = false, reverse = false, biases = true, saves = true;
  Element element = Element::f32;
  double gates = 0;      // if not 0, gate biases are between -gates and gates
  bool initial = false;  // small parameters and freshly initialised forget gates; no gaps between rows
};
inline std::ostream& operator<<(std::ostream& out, const MixerCase& c) {
  return out << "B" << c.batch << " grid " << c.rows << "x" << c.columns << " C" << c.channels << " H"
             << c.heads << " kernel " << c.kernel << (c.causal ? " causal" : "")
             << (c.reverse ? " reverse" : "") << (c.biases ? "" : " no biases")
             << (c.saves ? "" : " recomputed") << (c.element == Element::bf16 ? " bf16" : "") << " gates "
             << c.gates;
}
// Batches below and above the number of threads, published sizes and odd sizes.
inline const MixerCase kMixerCases[] = {
    {5, 7, 7, 32, 4, 3},
    {1, 8, 8, 192, 4, 3, false, true},
    {1, 10, 10, 192, 4, 3, false, true},  // large enough for threads to share it
    {3, 4, 6, 24, 2, 3, false, true, false},
    {2, 1, 19, 20, 1, 4, true, false},
    {4, 1, 33, 48, 3, 4, true, true, true, false},
    {1, 3, 5, 60, 3, 5, false, true, true, false},
    {2, 3, 3, 24, 4, 3},  // six channels per head
    {3, 6, 6, 64, 4, 3, false, true, true, true, Element::bf16},
    {1, 2, 2, 4, 4, 3},
    {2, 1, 1, 16, 2, 3},
    {1, 1, 1, 20, 1, 4, true, true}};
inline const MixerCase kMixerExtremeGates[] = {
    {2, 6, 6, 32, 4, 3, false, false, true, true, Element::f32, 40},
    {1, 1, 50, 64, 8, 4, true, true, true, true, Element::f32, 40},
    {3, 1, 1, 16, 4, 4, true, false, true, false, Element::f32, 40},
    {1, 9, 9, 48, 4, 3, false, true, true, true, Element::bf16, 40}};
// Long enough for forward to split them into pieces, of 192 to 448 tokens depending on width and threads.
inline const MixerCase kMixerLongCases[] = {{1, 31, 16, 192, 4, 3},
                                            {2, 30, 13, 384, 4, 3, false, true, true, true, Element::bf16},
                                            {1, 20, 15, 192, 4, 3, false, true, true, true, Element::bf16},
                                            {1, 1, 470, 384, 4, 4, true, false},
                                            {1, 1, 460, 384, 4, 4, true, true},
                                            {2, 1, 300, 384, 4, 4, true, false, true, true, Element::bf16}};

// The widths and image sizes of Vision-LSTM: eight images of 224 pixels per side, one of 448, 896 and 1792.
inline MixerCase published_mixer_case(int64_t channels, int64_t side, int64_t batch, Element element) {
  MixerCase c{batch, side, side, channels, 4, 3};
  c.element = element, c.initial = true;
  return c;
}
inline std::vector<MixerCase> mixer_bench_cases() {
  std::vector<MixerCase> all;
  for (const int64_t channels : {384, 768})
    for (const int64_t side : {14, 28, 56, 112})
      for (const Element element : {Element::f32, Element::bf16})
        all.push_back(published_mixer_case(channels, side, side == 14 ? 8 : 1, element));
  return all;
}

using MixerVectors = MlstmMixerParametersOf<std::vector<float>>;

// Returns pointers to vectors, null for empty ones.
template <class Pointers, class Vectors>
Pointers pointers_to(Vectors& vectors) {
  Pointers pointers;
  visit_mixer_parameters(
      {},
      [](const char*, bool, const ParameterShape&, auto& from, auto& to) {
        to = from.empty() ? nullptr : from.data();
      },
      vectors, pointers);
  return pointers;
}

// All arguments of one call, filled with random numbers.
struct MixerProblem {
  explicit MixerProblem(const MixerCase& config)
      : c(config),
        T(c.rows * c.columns),
        u(c.element, c.batch * T * u_row()),
        y(c.element, c.batch * T * c.channels),
        dy(c.element, c.batch * T * c.channels),
        du(c.element, c.batch * T * 2 * c.channels) {
    uint64_t seed = 10;
    visit_mixer_parameters(
        shape(),
        [&](const std::string& name, bool required, const ParameterShape& of, std::vector<float>& to) {
          to = parameter(name, required, of.numbers(), seed++);
        },
        parameters);
    gradients = parameters;
    const auto values = normal(u.count(), 1), weights = normal(dy.count(), 2);
    for (int64_t i = 0; i < u.count(); ++i) u.set(i, values[i]);
    for (int64_t i = 0; i < dy.count(); ++i) dy.set(i, weights[i]);
    h.resize(c.batch * T * c.channels), normaliser.resize(c.batch * c.heads * T), row_sign = normaliser;
  }
  std::vector<float> parameter(const std::string& name, bool required, int64_t count, uint64_t seed) const {
    const bool gate = name.starts_with("input") || name.starts_with("forget"), bias = name.ends_with("bias");
    if (c.initial) {
      std::vector<float> values = normal(count, seed, 0, 0.05);
      // With weaker forget gates, the cell would cut its chunks short.
      for (size_t head = 0; name == "forget_bias" && head < values.size(); ++head)
        values[head] = 3 + static_cast<float>(head);
      return values;
    }
    if (!required && bias && !gate && !c.biases) return {};
    if (gate && bias && c.gates > 0) return uniform(count, seed, -c.gates, c.gates);
    // In bfloat16, queries and keys with a mean keep row sums away from zero, where the cell magnifies its
    // roundings.
    const bool meant = c.element == Element::bf16 && (name == "q_bias" || name == "k_bias");
    const double deviation = gate && !bias ? 1 / std::sqrt(3.0 * static_cast<double>(c.channels)) : 0.5;
    return normal(count, seed, name == "forget_bias" || meant ? 2 : 0.2, deviation);
  }
  MlstmMixerShape shape() const {
    return {c.batch, c.rows, c.columns, c.channels, c.heads, c.kernel, c.causal, c.reverse, 1e-5f, 1e-6f};
  }
  MlstmMixerSaved saved() {
    if (!c.saves) return {};
    return {h.data(), normaliser.data(), row_sign.data()};
  }
  MlstmMixerForward forward() {
    const int64_t C = c.channels;
    return {shape(),
            {u.data(), c.element, T * u_row(), u_row()},
            pointers_to<MlstmMixerParameters>(parameters),
            {y.data(), c.element, T * C, C},
            saved()};
  }
  MlstmMixerBackward backward() {
    const int64_t C = c.channels;
    return {shape(),
            {u.data(), c.element, T * u_row(), u_row()},
            {dy.data(), c.element, T * C, C},
            pointers_to<MlstmMixerParameters>(parameters),
            saved(),
            {du.data(), c.element, T * 2 * C, 2 * C},
            pointers_to<MlstmMixerGradients>(gradients)};
  }
  void run() {
    mlstm_mixer_forward(forward());
    mlstm_mixer_backward(backward());
  }
  std::vector<double> values(const Guarded& from) const {
    std::vector<double> out;
    for (int64_t i = 0; i < from.count(); ++i) out.push_back(from.get(i));
    return out;
  }

  int64_t u_row() const { return 2 * c.channels + (c.initial ? 0 : 3); }

  MixerCase c;
  int64_t T;
  Guarded u, y, dy, du;
  MixerVectors parameters, gradients;
  std::vector<float> h, normaliser, row_sign;
};

}  // namespace tessera::kernels::testing
