// Attention forward on whole numbers of 16 bits, whose products in pairs (AVX512_VNNI) go twice as fast as
// those of floats. Built once, on top of AVX-512.
//
//   q ~ a q', k ~ b k', v_c ~ d_c v'_c, p ~ p' / (2^14 - 1)     c a channel; a, b, d by the largest of the
//   block
//
// No sum of products leaves 32 bits: |q'|, |k'| <= sqrt(2^31 / D) (12 bits and the sign where D is 64) and
// |v'| <= 2^31 / (2^14 K) (9 bits and the sign for 256 keys). A number that is not finite makes its scale no
// number, and with it what depends on it.
#include "kernels/attention/attention_units.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kLargestWeight = 16383, kLog2OfLargestWeight = 13.99991194f;
constexpr float kRounds = 12582912;       // 1.5 * 2^23: adding it rounds to an integer
constexpr float kMostOfSum = 2147483520;  // below 2^31 as a float

// out = sum_k a[m][k] . b[k][n] over words of two int16, or out += scale[n] * that sum.
struct PairProduct {
  const float* a;
  int64_t a_row;
  const float* b;
  int64_t b_k, k;
  const float* scale;
  float* out;
  int64_t out_row;
};

TESSERA_INLINE vi load_words(const float* from) { return (vi)load(from); }
TESSERA_INLINE vi splat_word(const float* from) {
  int32_t word;
  memcpy(&word, from, sizeof word);
  return splat_int(word);
}

template <int MR, int NV>
static __attribute__((noinline)) void pair_tile(const PairProduct& p, int64_t row, int64_t column) {
  vi sums[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) sums[m][n] = vi{};
  const float *a = p.a + row * p.a_row, *b = p.b + column;
  for (int64_t k = 0; k < p.k; ++k, ++a, b += p.b_k) {
    vi bv[NV];
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) bv[n] = load_words(b + n * W);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const vi av = splat_word(a + m * p.a_row);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n)
        sums[m][n] = (vi)_mm512_dpwssd_epi32((__m512i)sums[m][n], (__m512i)av, (__m512i)bv[n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      float* out = p.out + (row + m) * p.out_row + column + n * W;
      const vf sum = __builtin_convertvector(sums[m][n], vf);
      store(out, p.scale ? load(out) + sum * load(p.scale + column + n * W) : sum);
    }
}

// All columns, `width` of them: a multiple of 16.
template <int MR>
void pair_rows(const PairProduct& p, int64_t row, int64_t width) {
  int64_t vectors = width / W, column = 0;
  for (int64_t groups = (vectors + 2) / 3; groups > 0; --groups) {
    const int64_t now = (vectors + groups - 1) / groups;
    if (now == 3)
      pair_tile<MR, 3>(p, row, column);
    else if (now == 2)
      pair_tile<MR, 2>(p, row, column);
    else
      pair_tile<MR, 1>(p, row, column);
    vectors -= now;
    column += now * W;
  }
}
void pair_product(const PairProduct& p, int64_t rows, int64_t width) {
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) pair_rows<8>(p, row, width);
  if (rows - row >= 4) pair_rows<4>(p, row, width), row += 4;
  if (rows - row >= 2) pair_rows<2>(p, row, width), row += 2;
  if (rows - row >= 1) pair_rows<1>(p, row, width);
}

TESSERA_INLINE vi to_integers(vf v) { return (vi)_mm512_maskz_cvtps_epi32((__mmask16)-1, (__m512)v); }
TESSERA_INLINE void store_shorts(float* to, vi v) {
  const __m256i shorts = _mm512_maskz_cvtepi32_epi16((__mmask16)-1, (__m512i)v);
  memcpy(to, &shorts, sizeof shorts);
}

// `rows` rows of Dp floats become rows of Dp / 2 words at the same place; returns what one of a number is
// worth.
float fix_rows(float* rows, int64_t count, int64_t Dp, float most) {
  const float largest = largest_size(rows, count * Dp);
  const float unit = largest == 0 ? 1 : largest / most, inverse = 1 / unit;
  for (int64_t r = 0; r < count; ++r, rows += Dp)
    for (int64_t c = 0; c < Dp; c += W) store_shorts(rows + c / 2, to_integers(load(rows + c) * inverse));
  return unit;
}

// Words of `count` rows, Dp apart, turned: to[w][r] for w < words; what is behind `count` is any number.
void turn_words(const float* from, int64_t Dp, int64_t count, int64_t words, float* to, int64_t to_row) {
  for (int64_t r = 0; r < count; r += W)
    for (int64_t w = 0; w < words; w += 4) {
      vf turned[4];
      transpose_four(from + r * Dp + w, Dp, turned);
      for (int64_t i = 0; i < 4 && w + i < words; ++i) store(to + (w + i) * to_row + r, turned[i]);
    }
}

// Rows of Dp floats become words of two rows at the same place, channel c in units of scale[c].
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
  // Kept as kRounds + p': p' is among the low bits.
  TESSERA_INLINE vf weights(vf x) {
    const vf held = max(splat(-30.0f), x + kLog2OfLargestWeight);  // what is that small becomes 0
    const vf shifted = held + kRounds, n = shifted - kRounds, r = held - n;
    // 2^r to 2.6e-6: a sixth of what rounding to 14 bits does to the largest.
    vf p = r * 9.5701019e-3f + 5.5917864e-2f;
    p = p * r + 2.4024745e-1f;
    p = p * r + 6.9312181e-1f;
    p = p * r + 9.9999926e-1f;
    return rounded((vf)_mm512_maskz_scalef_ps((__mmask16)-1, (__m512)p, (__m512)n));
  }
  TESSERA_INLINE vf numbers(vf kept) { return kept - kRounds; }
  TESSERA_INLINE vf rounded(vf p) { return p + kRounds; }
  // Eight words where sixteen scores were: in front of those that are still to be read.
  TESSERA_INLINE void put_weights(float* row, int64_t c, vf kept) { store_shorts(row + c / 2, (vi)kept); }
  float score_unit() const { return query_unit * key_unit; }

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
    turn_words(f.rows, Dp, block.count, (s.dim + 1) / 2, f.keys_t, Nb);
    read_rows(unit.call.v, s, unit.item, block.first, block.count, {}, f.values);
    fix_values(f.values, block.count, Dp, __builtin_floorf(kMostOfSum / kLargestWeight / (float)(Nb)),
               f.value_units);
  }
  void scores(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& columns) const {
    const AttentionShape& s = unit.call.shape;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
    pair_product({unit.f.queries + r * Dp, Dp, unit.f.keys_t + columns.begin, Nb, (s.dim + 1) / 2, nullptr,
                  unit.f.scores + columns.begin, Nb},
                 rows, round_up16(columns.end) - columns.begin);
  }
  void add_values(const AttentionUnit& unit, int64_t r, int64_t rows, const KeyRange& keys) const {
    const AttentionShape& s = unit.call.shape;
    const int64_t Dp = round_up16(s.dim), Nb = round_up16(s.key_block);
    pair_product({unit.f.scores + keys.begin / 2, Nb, unit.f.values + keys.begin / 2 * Dp, Dp,
                  (keys.end - keys.begin + 1) / 2, unit.f.value_units, unit.f.sums + r * Dp, Dp},
                 rows, Dp);
  }
};

void attention_forward(const AttentionForward& call, int64_t begin, int64_t end, void* scratch) {
  run_units<FixedForm>(call, begin, end, scratch);
}

}  // namespace

extern const AttentionForwardFunction attention_fixed;
const AttentionForwardFunction attention_fixed = attention_forward;

}  // namespace tessera::kernels::TESSERA_ISA
