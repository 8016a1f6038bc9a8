// Attention forward on 16-bit integers: their products in pairs (AVX512_VNNI) are twice as fast as those of
// floats. Built once, on top of AVX-512.
//
//   q ~ a q',  k ~ b k',  v_c ~ d_c v'_c,  p ~ p' / (2^14 - 1)
//
// where c is a channel and a, b, d are given by the largest magnitude of the block. No sum of products
// exceeds 32 bits: |q'|, |k'| <= sqrt(2^31 / D) (12 bits and the sign if D is 64) and
// v'| <= 2^31 / (2^14 K) (9 bits and the sign for 256 keys). A number that is not finite makes its scale NaN,
// and so the results that depend on it.
#include "kernels/attention/attention_words.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kLargestWeight = 16383, kLog2OfLargestWeight = 13.99991194f;
constexpr float kRounds = 12582912;       // 1.5 * 2^23: adding it rounds to an integer
constexpr float kMostOfSum = 2147483520;  // below 2^31 as a float

TESSERA_INLINE vi to_integers(vf v) { return (vi)_mm512_maskz_cvtps_epi32((__mmask16)-1, (__m512)v); }
TESSERA_INLINE void store_shorts(float* to, vi v) {
  const __m256i shorts = _mm512_maskz_cvtepi32_epi16((__mmask16)-1, (__m512i)v);
  memcpy(to, &shorts, sizeof shorts);
}

// Converts `count` rows of Dp floats in place into rows of Dp / 2 words; returns the unit of these integers.
float fix_rows(float* rows, int64_t count, int64_t Dp, float most) {
  const float largest = largest_size(rows, count * Dp);
  const float unit = largest == 0 ? 1 : largest / most, inverse = 1 / unit;
  for (int64_t r = 0; r < count; ++r, rows += Dp)
    for (int64_t c = 0; c < Dp; c += W) store_shorts(rows + c / 2, to_integers(load(rows + c) * inverse));
  return unit;
}

// Converts rows of Dp floats into words of two rows in place, channel c in units of scale[c].
void fix_values(float* rows, int64_t count, int64_t Dp, float most, float* scale) {
  for (int64_t c = 0; c < Dp; c += W) {
    vi bits = {};
    for (int64_t r = 0; r < count; ++r) bits = larger_size(bits, load(rows + r * Dp + c));
    const vf largest = bits < 0x7f800000 ? (vf)bits : splat(__builtin_nanf(""));
    const vf unit = largest == 0.0f ? splat(1.0f) : largest / most, inverse = 1.0f / unit;
    store(scale + c, unit / kLargestWeight);
    for (int64_t r = 0; r < count; r += 2) {
      const float* at = rows + r * Dp + c;
      const vi first = to_integers(load(at) * inverse);
      const vi second = r + 1 < count ? to_integers(load(at + Dp) * inverse) : vi{};
      store(rows + r / 2 * Dp + c, (vf)((first & 0xffff) | (second << 16)));
    }
  }
}

struct FixedForm {
  float query_unit = 1, key_unit = 1;

  TESSERA_INLINE float weight_unit() { return 1 / kLargestWeight; }
  // Returns kRounds + p' for a weight p', so that the low bits are p' as an integer.
  TESSERA_INLINE vf weights(vf x) {
    // Weights of at most 2^-30 become 0.
    return rounded(exp2_coarse(max(splat(-30.0f), x + kLog2OfLargestWeight)));
  }
  TESSERA_INLINE vf numbers(vf kept) { return kept - kRounds; }
  TESSERA_INLINE vf rounded(vf p) { return p + kRounds; }
  // Writes eight words over sixteen scores, before the scores that are still to be read.
  TESSERA_INLINE void put_weights(float* row, int64_t c, vf kept) { store_shorts(row + c / 2, (vi)kept); }
  float weigh(const ScoreRow& row, float gain, float reference) const {
    return weigh_row(*this, row, gain, reference);
  }
  float score_unit(const AttentionUnit&, int64_t) const { return query_unit * key_unit; }

  static float most(const AttentionShape& s) {
    const float held = __builtin_floorf(__builtin_sqrtf(kMostOfSum / (float)round_up16(s.dim)));
    return held < 32767 ? held : 32767;
  }
  void read_queries(const AttentionUnit& unit) {
    const AttentionShape& s = unit.call.shape;
    read_rows(unit.call.q, s, unit.item, unit.first, unit.count, unit.call.q_rotary, unit.f.queries);
    query_unit = fix_rows(unit.f.queries, unit.count, round_up16(s.dim), most(s));
  }
  void pack_keys(const AttentionUnit& unit, const KeyBlock& block) {
    const AttentionShape& s = unit.call.shape;
    const AttentionForwardScratch& f = unit.f;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
    read_rows(unit.call.k, s, unit.item, block.first, block.count, unit.call.k_rotary, f.rows);
    key_unit = fix_rows(f.rows, block.count, Dp, most(s));
    transpose_words(f.rows, Dp, block.count, (s.dim + 1) / 2, f.keys_t, Nb);
    read_rows(unit.call.v, s, unit.item, block.first, block.count, {}, f.values);
    fix_values(f.values, block.count, Dp, __builtin_floorf(kMostOfSum / kLargestWeight / (float)(Nb)),
               f.value_units);
  }
  void scores(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& columns) const {
    word_scores(unit, {unit.f.queries, round_up16(unit.call.shape.dim)}, r, rows, columns);
  }
  void add_values(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& keys) const {
    add_word_values(unit, r, rows, keys, unit.f.value_units);
  }
};

void attention_forward(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  run_units<FixedForm>(call, begin, end, scratch);
}

}  // namespace

extern const AttentionForwardFunction attention_fixed;
const AttentionForwardFunction attention_fixed = attention_forward;

}  // namespace tessera::kernels::TESSERA_ISA
