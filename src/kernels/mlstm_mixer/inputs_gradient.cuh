// The gradients of the inputs of an mLSTM mixer's cell, on a GPU (inputs.cuh):
//   1. the gradients of q, k, v and of the convolution, with those that come through the gates, and of x through v
//   2. the gradient of x through the convolution
//   3. sums over tokens for the parameters, in parts
//   4. the sums of the parts
// Each walks over memory once; 3 and 4 add in a fixed order.
#pragma once

#include "kernels/gpu/parts.h"
#include "kernels/mlstm_mixer/inputs.cuh"

namespace tessera::kernels::gpu {

constexpr int kMixerTaps = 7;  // the most in a row of the convolution that the sums have registers for

// Where gradients of the parameters begin, in numbers.
struct MixerOffsets {
  int64_t conv_bias, blocks, gates, of_gate;
  TESSERA_DEVICE static MixerOffsets of(const MixerInputs& call) {
    const int64_t taps = mixer_taps(call), C = call.channels;
    return {taps * C, (taps + 1) * C, (taps + 16) * C, 3 * call.heads * C};
  }
};

struct MixerTotalsKernel {
  using Call = MixerInputsBackward;
  using Inputs = MixerInputsKernel;
  using Place = Inputs::Place;
  static constexpr int kTokens = Inputs::kTokens, kWarps = Inputs::kWarps, kThreads = Inputs::kThreads,
                       kShared = 0, kBlocks = 2;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const MixerInputs& of = call.of;
    const int64_t groups = (of.tokens + kTokens - 1) / kTokens, group = at.x * kWarps + warp();
    if (group >= of.batch * groups) return;
    Place place{group / groups, group % groups * kTokens, 0};
    place.count = of.tokens - place.first < kTokens ? of.tokens - place.first : kTokens;
    for (int64_t c = lane() * 8; c < of.channels; c += kLanes * 8) columns(call, place, c);
  }

  // Eight channels of the warp's tokens.
  static TESSERA_DEVICE void columns(const Call& call, const Place& place, int64_t c) {
    const MixerInputs& of = call.of;
    const int64_t size = of.batch * of.tokens * of.channels;
    float g[kTokens][8], of_a[kTokens][8], y[kTokens][8];
    load(call, place, c, call.da, of_a);
    total(call, place, c, call.dq, 0, g);
    store(call, place, c, call.totals, g), add_transposed(of.q_weight, c, g, of_a);
    total(call, place, c, call.dk, 1, g);
    store(call, place, c, call.totals + size, g), add_transposed(of.k_weight, c, g, of_a);
    Inputs::convolve(of, place, c, y);
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) {
        const float s = sigmoid(y[t][j]);
        of_a[t][j] *= s * (1 + y[t][j] * (1 - s));
      }
    }
    store(call, place, c, call.totals + 3 * size, of_a);
    total(call, place, c, call.dv, 2, g);
    store(call, place, c, call.totals + 2 * size, g);
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) y[t][j] = 0;
    }
    add_transposed(of.v_weight, c, g, y);
    store(call, place, c, call.dx, y);
  }

  static TESSERA_DEVICE int64_t index(const Call& call, const Place& place, int64_t c, int t) {
    const int64_t token = place.first + (t < place.count ? t : 0);
    return (place.sample * call.of.tokens + token) * call.of.channels + c;
  }
  static TESSERA_DEVICE void load(const Call& call, const Place& place, int64_t c, const uint16_t* from,
                                  float (&to)[kTokens][8]) {
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      if (from) {
        load8(to[t], from, Element::bf16, index(call, place, c, t));
      } else {
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) to[t][j] = 0;
      }
    }
  }
  static TESSERA_DEVICE void store(const Call& call, const Place& place, int64_t c, uint16_t* to,
                                   const float (&from)[kTokens][8]) {
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      if (t < place.count) store8(to, Element::bf16, index(call, place, c, t), from[t]);
    }
  }

  // The gradient of q (part 0), k or v (2): its own, and those of the gates that read it. Their numbers are read again for
  // each, since registers for all of them would spill.
  static TESSERA_DEVICE void total(const Call& call, const Place& place, int64_t c, const uint16_t* own,
                                   int part, float (&g)[kTokens][8]) {
    load(call, place, c, own, g);
    const MixerInputs& of = call.of;
    for (int head = 0; head < of.heads; ++head) {
      const int64_t first = (place.sample * of.heads + head) * of.tokens + place.first;
      TESSERA_UNROLL for (int gate = 0; gate < 2; ++gate) {
        const float* const from = (gate == 0 ? call.digate : call.dfgate) + first;
        float weight[8];
        load8(weight, gate == 0 ? of.input_weight : of.forget_weight, Element::f32,
              (head * 3 + part) * of.channels + c);
        TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
          const float slope = from[t < place.count ? t : 0];
          TESSERA_UNROLL for (int j = 0; j < 8; ++j) g[t][j] += slope * weight[j];
        }
      }
    }
  }

  // Adds W^T g of two blocks of 4 x 4.
  static TESSERA_DEVICE void add_transposed(const float* weight, int64_t c, const float (&g)[kTokens][8],
                                            float (&to)[kTokens][8]) {
    TESSERA_UNROLL for (int o = 0; o < 8; o += 2) {
      float w[8];  // two outputs' weights
      load8(w, weight, Element::f32, (c + o) * 4);
      TESSERA_UNROLL for (int p = 0; p < 2; ++p) {
        TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
          TESSERA_UNROLL for (int d = 0; d < 4; ++d) to[t][o / 4 * 4 + d] += w[4 * p + d] * g[t][o + p];
        }
      }
    }
  }
};

// Adds the gradient of x through the convolution to that through v.
struct MixerToInputKernel {
  using Call = MixerInputsBackward;
  static constexpr int kThreads = 128, kShared = 0, kBlocks = 8;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const MixerInputs& of = call.of;
    int64_t row, c;
    if (!place_of_eight(of.batch * of.tokens, of.channels, at, kThreads, row, c)) return;
    const uint16_t* const of_conv = call.totals + 3 * of.batch * of.tokens * of.channels;
    const int64_t token = row % of.tokens, first = row - token, down = of.columns > 0 ? of.kernel : 1;
    MixerInputs mirrored = of;  // the tokens that read a token are where it would read from, the other way
    mirrored.reverse = !of.reverse;
    float sum[8];
    load8(sum, call.dx, Element::bf16, row * of.channels + c);
    for (int64_t dy = 0; dy < down; ++dy)
      for (int64_t dx = 0; dx < of.kernel; ++dx) {
        const int64_t reader = MixerInputsKernel::source(mirrored, token, dy, dx);
        if (reader < 0) continue;
        float weight[8], g[8];
        load8(weight, of.conv_weight, Element::f32, (dy * of.kernel + dx) * of.channels + c);
        load8(g, of_conv, Element::bf16, (first + reader) * of.channels + c);
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) sum[j] += weight[j] * g[j];
      }
    store8(call.dx, Element::bf16, row * of.channels + c, sum);
  }
};

// Sums of a part of the tokens, for eight channels a lane. y of the block: 0 to 2 the blocks of q, k and v, 3 to 5 the gates
// that read them, from 6 on a row of the convolution's weights each.
struct MixerSumsKernel {
  using Call = MixerInputsBackward;
  static constexpr int kThreads = kLanes, kShared = 0, kBlocks = 12, kColumns = kLanes * 8;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const int64_t c = at.z * kColumns + lane() * 8;
    if (c >= call.of.channels) return;
    float* const to = call.partial + at.x * mixer_numbers(call.of);
    if (at.y < 3)
      sum_blocks(call, at.x, (int)at.y, c, to);
    else if (at.y < 6)
      sum_gates(call, at.x, (int)at.y - 3, c, to);
    else
      sum_taps(call, at.x, at.y - 6, c, to);
  }

  static TESSERA_DEVICE int64_t rows(const MixerInputs& of) { return of.batch * of.tokens; }
  // x of a row.
  static TESSERA_DEVICE void load_x(const MixerInputs& of, int64_t sample, int64_t token, int64_t c,
                                    float (&x)[8]) {
    load8(x, of.x, Element::bf16, sample * of.sample + token * of.row + c);
  }

  static TESSERA_DEVICE void sum_blocks(const Call& call, int64_t part, int which, int64_t c, float* to) {
    const MixerInputs& of = call.of;
    const uint16_t* const totals = call.totals + which * rows(of) * of.channels;
    float weight[8][4] = {}, bias[8] = {};
    for (int64_t row = part; row < rows(of); row += row_parts(rows(of))) {
      float g[8], in[8];
      load8(g, totals, Element::bf16, row * of.channels + c);
      if (which < 2)
        load8(in, of.a, Element::bf16, row * of.channels + c);
      else
        load_x(of, row / of.tokens, row % of.tokens, c, in);
      TESSERA_UNROLL for (int o = 0; o < 8; ++o) {
        bias[o] += g[o];
        TESSERA_UNROLL for (int d = 0; d < 4; ++d) weight[o][d] += g[o] * in[o / 4 * 4 + d];
      }
    }
    to += MixerOffsets::of(of).blocks + which * 5 * of.channels;
    TESSERA_UNROLL for (int o = 0; o < 8; ++o) {
      TESSERA_UNROLL for (int d = 0; d < 4; ++d) to[(c + o) * 4 + d] = weight[o][d];
      to[4 * of.channels + c + o] = bias[o];
    }
  }

  static TESSERA_DEVICE void sum_gates(const Call& call, int64_t part, int which, int64_t c, float* to) {
    const MixerInputs& of = call.of;
    const uint16_t* const y = which == 0 ? of.q : which == 1 ? of.k : of.v;
    float sums[2][kMixerHeads][8] = {};
    for (int64_t row = part; row < rows(of); row += row_parts(rows(of))) {
      const int64_t sample = row / of.tokens, token = row % of.tokens;
      float in[8];
      load8(in, y, Element::bf16, row * of.channels + c);
      TESSERA_UNROLL for (int head = 0; head < kMixerHeads; ++head) {
        if (head >= of.heads) continue;
        const int64_t at = (sample * of.heads + head) * of.tokens + token;
        const float di = call.digate[at], df = call.dfgate[at];
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) sums[0][head][j] += di * in[j],
            sums[1][head][j] += df * in[j];
      }
    }
    const MixerOffsets offsets = MixerOffsets::of(of);
    TESSERA_UNROLL for (int gate = 0; gate < 2; ++gate) {
      TESSERA_UNROLL for (int head = 0; head < kMixerHeads; ++head) {
        if (head < of.heads)
          store8(to, Element::f32,
                 offsets.gates + gate * offsets.of_gate + (head * 3 + which) * of.channels + c,
                 sums[gate][head]);
      }
    }
  }

  static TESSERA_DEVICE void sum_taps(const Call& call, int64_t part, int64_t dy, int64_t c, float* to) {
    const MixerInputs& of = call.of;
    const uint16_t* const of_conv = call.totals + 3 * rows(of) * of.channels;
    float sums[kMixerTaps][8] = {}, bias[8] = {};
    for (int64_t row = part; row < rows(of); row += row_parts(rows(of))) {
      const int64_t sample = row / of.tokens, token = row % of.tokens;
      float g[8];
      load8(g, of_conv, Element::bf16, row * of.channels + c);
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) bias[j] += g[j];
      TESSERA_UNROLL for (int dx = 0; dx < kMixerTaps; ++dx) {
        const int64_t from = dx < of.kernel ? MixerInputsKernel::source(of, token, dy, dx) : -1;
        if (from < 0) continue;
        float x[8];
        load_x(of, sample, from, c, x);
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) sums[dx][j] += g[j] * x[j];
      }
    }
    TESSERA_UNROLL for (int dx = 0; dx < kMixerTaps; ++dx) {
      if (dx < of.kernel) store8(to, Element::f32, (dy * of.kernel + dx) * of.channels + c, sums[dx]);
    }
    if (dy == 0) store8(to, Element::f32, MixerOffsets::of(of).conv_bias + c, bias);
  }
};

// The sums of the parts.
struct MixerPartsKernel : PartsSum {
  using Call = MixerInputsBackward;

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t parts = row_parts(MixerSumsKernel::rows(call.of));
    float sum;
    if (add(call.partial, parts, mixer_numbers(call.of), at, shared, sum)) call.dparameters[column(at)] = sum;
  }
};

}  // namespace tessera::kernels::gpu
