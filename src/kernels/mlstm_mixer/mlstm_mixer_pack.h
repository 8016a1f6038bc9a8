// Packs the mixer's parameters into the layouts of parts.h, and unpacks their gradients. Internal to the
// mixer.
#pragma once

#include "kernels/mlstm_mixer/mlstm_mixer.h"

namespace tessera::kernels {

// Hands out floats on 64-byte boundaries; with a null base it only counts them.
struct Floats {
  float* base;
  int64_t used = 0;
  float* take(int64_t count) {
    float* piece = base ? base + used : nullptr;
    used += (count + 15) / 16 * 16;
    return piece;
  }
  uint16_t* take_halves(int64_t count) { return reinterpret_cast<uint16_t*>(take((count + 1) / 2)); }
  size_t bytes() const { return static_cast<size_t>(used) * sizeof(float); }
};

// Returns the numbers per token for its gates: 2 H, padded.
inline int64_t gate_row(const MlstmMixerShape& s) { return (2 * s.heads + 7) / 8 * 8; }
inline int64_t taps_of(const MlstmMixerShape& s) { return s.causal ? s.kernel : s.kernel * s.kernel; }

// Parameters, or the gradients that one thread sums.
struct PackedMixer {
  float *taps, *conv_bias, *q_lanes, *k_lanes, *v_lanes, *q_bias, *k_bias, *v_bias;
  float *scale, *bias, *skip;
  float *folded_weight, *folded_bias;  // (G',2C), (G'): the gates as maps of a and x
  float *gate_weight, *gate_bias;      // (G',3C), (G'): as stored, maps of q, k and v
  uint16_t* folded_half;               // folded_weight in bfloat16, if multiplied in pairs
  PackedMixer(Floats& floats, const MlstmMixerShape& s, bool pairs = false);
  // Returns the part for channels c … .
  HeadwiseWeights headwise(const MlstmMixerShape& s, int64_t c) const;
  HeadwiseGradients headwise_sums(const MlstmMixerShape& s, int64_t c) const;
};

void pack_mixer(const MlstmMixerParameters& from, const MlstmMixerShape& s, const MixerFunctions& parts,
                const PackedMixer& to);
// `sums` are the totals over all threads; the part that passed through the gates is unfolded in place.
void unpack_mixer(const PackedMixer& weights, const PackedMixer& sums, const MlstmMixerShape& s,
                  const MixerFunctions& parts, const MlstmMixerGradients& to);

}  // namespace tessera::kernels
