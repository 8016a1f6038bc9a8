#include "kernels/mlstm_mixer/mlstm_mixer_pack.h"

#include <algorithm>

namespace tessera::kernels {
namespace {

void copy_or_zero(float* to, const float* from, int64_t count) {
  if (from)
    std::copy_n(from, count, to);
  else
    std::fill_n(to, count, 0.0f);
}

// Moves lanes[d * C + 4 b + o] and weight[b][o][d] in either direction.
template <class Move>
void for_each_lane(int64_t channels, Move move) {
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t d = 0; d < 4; ++d) move(d * channels + c, c * 4 + d);
}

// Uses partial sums, as exact as the kernels' and without a chain of additions.
float dot(const float* a, const float* b, int64_t n) {
  float partial[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int64_t j = 0; j < 16; ++j) partial[j] += a[i + j] * b[i + j];
  float total = 0;
  for (; i < n; ++i) total += a[i] * b[i];
  for (const float sum : partial) total += sum;
  return total;
}

// Rows of the gates' weights for q, k or v.
FloatRows gate_rows(const PackedMixer& p, const MlstmMixerShape& s, int64_t part) {
  return {p.gate_weight + part * s.channels, 0, 3 * s.channels};
}

// gate = Wg [q; k; v] + bg with q = Wq a + bq …: the factors on a and x are Wg times those maps, as in the
// gradients of a and x.
void fold_gates(const MlstmMixerShape& s, const MixerFunctions& parts, const PackedMixer& to) {
  const int64_t C = s.channels, G = gate_row(s);
  std::fill_n(to.folded_weight, G * 2 * C, 0.0f);
  parts.headwise_backward({G,
                           C,
                           {},
                           {},
                           gate_rows(to, s, 0),
                           gate_rows(to, s, 1),
                           gate_rows(to, s, 2),
                           to.headwise(s, 0),
                           {to.folded_weight, 0, 2 * C},
                           {to.folded_weight + C, 0, 2 * C},
                           {}},
                          0, G);
  for (int64_t g = 0; g < G; ++g) {
    const float* row = to.gate_weight + g * 3 * C;
    to.folded_bias[g] = to.gate_bias[g] + dot(row, to.q_bias, C) + dot(row + C, to.k_bias, C) +
                        dot(row + 2 * C, to.v_bias, C);
  }
}

// With S = sum over tokens of dgate [a; x] and s = sum of dgate: dWg = S Wq^T + s bq^T (also for k and v),
// dWq += Wg^T S, dbq += Wg^T s.
void unfold_gates(const PackedMixer& weights, const PackedMixer& sums, const MlstmMixerShape& s,
                  const MixerFunctions& parts) {
  const int64_t C = s.channels, G = gate_row(s);
  const TokenRows of_a{sums.folded_weight, Element::f32, 0, 2 * C},
      of_x{sums.folded_weight + C, Element::f32, 0, 2 * C};
  const auto rows_to = [&](int64_t part) {
    return TokenRowsOut{sums.gate_weight + part * C, Element::f32, 0, 3 * C};
  };
  HeadwiseWeights maps = weights.headwise(s, 0);
  maps.q_bias = maps.k_bias = maps.v_bias = nullptr;
  parts.headwise_forward({G, C, of_a, of_x, maps, rows_to(0), rows_to(1), rows_to(2)}, 0, G);
  HeadwiseGradients lanes = sums.headwise_sums(s, 0);
  lanes.q_bias = lanes.k_bias = lanes.v_bias = nullptr;
  parts.headwise_backward({G,
                           C,
                           of_a,
                           of_x,
                           gate_rows(weights, s, 0),
                           gate_rows(weights, s, 1),
                           gate_rows(weights, s, 2),
                           maps,
                           {},
                           {},
                           lanes},
                          0, G);
  const float* const biases[] = {weights.q_bias, weights.k_bias, weights.v_bias};
  float* const bias_sums[] = {sums.q_bias, sums.k_bias, sums.v_bias};
  for (int64_t g = 0; g < G; ++g) {
    const float total = sums.folded_bias[g];
    sums.gate_bias[g] = total;
    for (int64_t part = 0; part < 3; ++part) {
      const float* weight = weights.gate_weight + (g * 3 + part) * C;
      float* to = sums.gate_weight + (g * 3 + part) * C;
      for (int64_t c = 0; c < C; ++c) {
        to[c] += total * biases[part][c];
        bias_sums[part][c] += total * weight[c];
      }
    }
  }
}

}  // namespace

PackedMixer::PackedMixer(Floats& floats, const MlstmMixerShape& s, bool pairs) {
  const int64_t C = s.channels, G = gate_row(s);
  taps = floats.take(taps_of(s) * C), conv_bias = floats.take(C);
  q_lanes = floats.take(4 * C), k_lanes = floats.take(4 * C), v_lanes = floats.take(4 * C);
  q_bias = floats.take(C), k_bias = floats.take(C), v_bias = floats.take(C);
  scale = floats.take(C), bias = floats.take(C), skip = floats.take(C);
  folded_weight = floats.take(G * 2 * C), folded_bias = floats.take(G);
  gate_weight = floats.take(G * 3 * C), gate_bias = floats.take(G);
  folded_half = pairs ? floats.take_halves(G * 2 * C) : nullptr;
}

HeadwiseWeights PackedMixer::headwise(const MlstmMixerShape& s, int64_t c) const {
  return {q_lanes + c, k_lanes + c, v_lanes + c, s.channels, q_bias + c, k_bias + c, v_bias + c};
}
HeadwiseGradients PackedMixer::headwise_sums(const MlstmMixerShape& s, int64_t c) const {
  return {q_lanes + c, k_lanes + c, v_lanes + c, s.channels, q_bias + c, k_bias + c, v_bias + c};
}

void pack_mixer(const MlstmMixerParameters& p, const MlstmMixerShape& s, const MixerFunctions& parts,
                const PackedMixer& to) {
  const int64_t C = s.channels, H = s.heads, taps = taps_of(s), G = gate_row(s);
  for (int64_t c = 0; c < C; ++c)
    for (int64_t t = 0; t < taps; ++t) to.taps[t * C + c] = p.conv_weight[c * taps + t];
  for_each_lane(C, [&](int64_t lane, int64_t weight) {
    to.q_lanes[lane] = p.q_weight[weight];
    to.k_lanes[lane] = p.k_weight[weight];
    to.v_lanes[lane] = p.v_weight[weight];
  });
  std::copy_n(p.input_weight, H * 3 * C, to.gate_weight);
  std::copy_n(p.forget_weight, H * 3 * C, to.gate_weight + H * 3 * C);
  std::fill_n(to.gate_weight + 2 * H * 3 * C, (G - 2 * H) * 3 * C, 0.0f);
  copy_or_zero(to.gate_bias, p.input_bias, H), copy_or_zero(to.gate_bias + H, p.forget_bias, H);
  std::fill_n(to.gate_bias + 2 * H, G - 2 * H, 0.0f);
  copy_or_zero(to.conv_bias, p.conv_bias, C);
  copy_or_zero(to.q_bias, p.q_bias, C), copy_or_zero(to.k_bias, p.k_bias, C),
      copy_or_zero(to.v_bias, p.v_bias, C);
  copy_or_zero(to.scale, p.norm_weight, C), copy_or_zero(to.bias, p.norm_bias, C),
      copy_or_zero(to.skip, p.skip, C);
  fold_gates(s, parts, to);
  if (to.folded_half) parts.narrow(to.folded_weight, to.folded_half, G * 2 * C);
}

void unpack_mixer(const PackedMixer& weights, const PackedMixer& sums, const MlstmMixerShape& s,
                  const MixerFunctions& parts, const MlstmMixerGradients& to) {
  const int64_t C = s.channels, H = s.heads, taps = taps_of(s);
  unfold_gates(weights, sums, s, parts);
  if (to.conv_weight)
    for (int64_t c = 0; c < C; ++c)
      for (int64_t t = 0; t < taps; ++t) to.conv_weight[c * taps + t] = sums.taps[t * C + c];
  for_each_lane(C, [&](int64_t lane, int64_t weight) {
    if (to.q_weight) to.q_weight[weight] = sums.q_lanes[lane];
    if (to.k_weight) to.k_weight[weight] = sums.k_lanes[lane];
    if (to.v_weight) to.v_weight[weight] = sums.v_lanes[lane];
  });
  const auto copy = [](float* out, const float* values, int64_t count) {
    if (out) std::copy_n(values, count, out);
  };
  copy(to.input_weight, sums.gate_weight, H * 3 * C);
  copy(to.forget_weight, sums.gate_weight + H * 3 * C, H * 3 * C);
  copy(to.input_bias, sums.gate_bias, H), copy(to.forget_bias, sums.gate_bias + H, H);
  copy(to.conv_bias, sums.conv_bias, C), copy(to.q_bias, sums.q_bias, C), copy(to.k_bias, sums.k_bias, C);
  copy(to.v_bias, sums.v_bias, C), copy(to.norm_weight, sums.scale, C), copy(to.norm_bias, sums.bias, C);
  copy(to.skip, sums.skip, C);
}

}  // namespace tessera::kernels
