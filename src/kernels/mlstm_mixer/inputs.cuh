// The inputs of an mLSTM mixer's cell, on a GPU: x in; a, q, k, v and the gates out.
//
// A warp has four tokens, so that a weight is read once for all; a lane eight channels at a time. The sums of the gates stay
// in registers over all channels, then the lanes add theirs.
#pragma once

#include "kernels/gpu/launch.h"

namespace tessera::kernels::gpu {

constexpr int kMixerHeads = 4;  // the most that the gates' sums have registers for

struct MixerInputsKernel {
  using Call = MixerInputs;
  static constexpr int kTokens = 4, kWarps = 4, kThreads = kWarps * kLanes, kShared = 0, kBlocks = 3;
  using Gates = float[kTokens][2][kMixerHeads];

  // The tokens of a warp in its sample; those from `count` on are beyond the end.
  struct Place {
    int64_t sample, first, count;
  };

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const int64_t groups = (call.tokens + kTokens - 1) / kTokens, group = at.x * kWarps + warp();
    if (group >= call.batch * groups) return;
    Place place{group / groups, group % groups * kTokens, 0};
    place.count = call.tokens - place.first < kTokens ? call.tokens - place.first : kTokens;
    Gates gates = {};
    for (int64_t c = lane() * 8; c < call.channels; c += kLanes * 8) {
      float a[kTokens][8];
      convolve(call, place, c, a);
      outputs(call, place, c, a, gates);
    }
    finish(call, place, gates);
  }

  // a = conv(x) of eight channels.
  static TESSERA_DEVICE void convolve(const Call& call, const Place& place, int64_t c,
                                      float (&a)[kTokens][8]) {
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) a[t][j] = call.conv_bias ? call.conv_bias[c + j] : 0;
    }
    const int64_t size = call.kernel, down = call.columns > 0 ? size : 1;
    for (int64_t dy = 0; dy < down; ++dy)
      for (int64_t dx = 0; dx < size; ++dx) {
        float weight[8];
        load8(weight, call.conv_weight, Element::f32, (dy * size + dx) * call.channels + c);
        TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
          const int64_t from = t < place.count ? source(call, place.first + t, dy, dx) : -1;
          if (from < 0) continue;
          float x[8];
          load8(x, call.x, Element::bf16, place.sample * call.sample + from * call.row + c);
          TESSERA_UNROLL for (int j = 0; j < 8; ++j) a[t][j] += weight[j] * x[j];
        }
      }
  }

  // Returns the token that a weight of the convolution reads for a token; -1 beyond the edge.
  static TESSERA_DEVICE int64_t source(const Call& call, int64_t token, int64_t dy, int64_t dx) {
    const int64_t sign = call.reverse ? -1 : 1;
    if (call.columns == 0) {
      const int64_t from = token + sign * (dx - (call.kernel - 1));
      return from < call.tokens ? from : -1;
    }
    const int64_t centre = call.kernel / 2, row = token / call.columns + sign * (dy - centre),
                  column = token % call.columns + sign * (dx - centre);
    const bool inside = row >= 0 && row < call.tokens / call.columns && column >= 0 && column < call.columns;
    return inside ? row * call.columns + column : -1;
  }

  // Stores a, q, k and v of eight channels, and adds to the gates.
  static TESSERA_DEVICE void outputs(const Call& call, const Place& place, int64_t c, float (&a)[kTokens][8],
                                     Gates& gates) {
    float y[kTokens][8];
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) a[t][j] *= sigmoid(a[t][j]);
    }
    store(call, place, c, call.a, a);
    blocks(call.q_weight, call.q_bias, c, a, y);
    store(call, place, c, call.q, y), add_to_gates(call, c, y, gates);
    blocks(call.k_weight, call.k_bias, c, a, y);
    store(call, place, c, call.k, y), add_to_gates(call, call.channels + c, y, gates);
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      const int64_t token = place.first + (t < place.count ? t : 0);
      load8(a[t], call.x, Element::bf16, place.sample * call.sample + token * call.row + c);
    }
    blocks(call.v_weight, call.v_bias, c, a, y);
    store(call, place, c, call.v, y), add_to_gates(call, 2 * call.channels + c, y, gates);
  }

  static TESSERA_DEVICE void store(const Call& call, const Place& place, int64_t c, uint16_t* to,
                                   const float (&y)[kTokens][8]) {
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      const int64_t row = place.sample * call.tokens + place.first + t;
      if (t < place.count) store8(to, Element::bf16, row * call.channels + c, y[t]);
    }
  }

  // Two blocks of 4 x 4.
  static TESSERA_DEVICE void blocks(const float* weight, const float* bias, int64_t c,
                                    const float (&x)[kTokens][8], float (&y)[kTokens][8]) {
    TESSERA_UNROLL for (int o = 0; o < 8; o += 2) {
      float w[8];  // two outputs' weights
      load8(w, weight, Element::f32, (c + o) * 4);
      TESSERA_UNROLL for (int p = 0; p < 2; ++p) {
        const float first = bias ? bias[c + o + p] : 0;
        TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
          y[t][o + p] = first;
          TESSERA_UNROLL for (int d = 0; d < 4; ++d) y[t][o + p] += w[4 * p + d] * x[t][o / 4 * 4 + d];
        }
      }
    }
  }

  static TESSERA_DEVICE void add_to_gates(const Call& call, int64_t c, const float (&y)[kTokens][8],
                                          Gates& gates) {
    TESSERA_UNROLL for (int gate = 0; gate < 2; ++gate) {
      TESSERA_UNROLL for (int head = 0; head < kMixerHeads; ++head) {
        if (head >= call.heads) continue;
        float weight[8];
        load8(weight, gate == 0 ? call.input_weight : call.forget_weight, Element::f32,
              head * 3 * call.channels + c);
        TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
          TESSERA_UNROLL for (int j = 0; j < 8; ++j) gates[t][gate][head] += weight[j] * y[t][j];
        }
      }
    }
  }

  static TESSERA_DEVICE void finish(const Call& call, const Place& place, const Gates& gates) {
    TESSERA_UNROLL for (int t = 0; t < kTokens; ++t) {
      TESSERA_UNROLL for (int gate = 0; gate < 2; ++gate) {
        TESSERA_UNROLL for (int head = 0; head < kMixerHeads; ++head) {
          const float sum = warp_sum(gates[t][gate][head]);
          if (lane() != head || head >= call.heads || t >= place.count) continue;
          const float* const bias = gate == 0 ? call.input_bias : call.forget_bias;
          float* const to = gate == 0 ? call.igate : call.fgate;
          to[(place.sample * call.heads + head) * call.tokens + place.first + t] =
              sum + (bias ? bias[head] : 0);
        }
      }
    }
  }
};

}  // namespace tessera::kernels::gpu
