// Attention of one token to a cache, for one instruction set. Per-ISA.
//
// Processes one head of keys at a time; its cache is read once for all query heads of its group. Scores come
// first, a vector of keys at a time, then the sums of the values.
#include "kernels/cached_attention/cached_attention.h"

#include "kernels/memory.h"
#include "kernels/rows.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kLog2E = 1.44269504f;
// The sums that stay in registers: this many vectors of channels for this many queries.
constexpr int kChannels = W == 16 ? 4 : 2, kQueries = 3;

// Keys are prefetched this far in advance.
constexpr int64_t kKeysAhead = 4 * W;

// One sample and one head of keys.
struct Unit {
  const CachedAttention& call;
  int64_t b, head;
  const float *cos, *sin;  // null: no rotation
  const uint8_t* seen;     // null: all
  int64_t first;           // first key of the window
};

const void* row_of(const HeadRows& rows, int64_t b, int64_t head) {
  return advance(rows.data, rows.element, b * rows.batch + head * rows.head);
}
void* row_of(const HeadRowsOut& rows, int64_t b, int64_t head, int64_t token) {
  return advance(rows.data, rows.element, b * rows.batch + head * rows.head + token * rows.token);
}

TESSERA_INLINE vf get_as(const void* from, Element element, int64_t at, int64_t left) {
  return element == Element::f32 ? get((const float*)from + at, left) : get((const bf16*)from + at, left);
}
TESSERA_INLINE void put_as(void* to, Element element, int64_t at, vf value, int64_t left) {
  if (element == Element::f32)
    put((float*)to + at, value, left);
  else
    put((bf16*)to + at, value, left);
}

// `to` gets factor R x.
void rotate(const Unit& unit, const void* x, Element from, void* to, Element into, float factor) {
  const int64_t dim = unit.call.dim, half = dim / 2;
  if (!unit.cos) {
    for (int64_t c = 0; c < dim; c += W) put_as(to, into, c, get_as(x, from, c, dim - c) * factor, dim - c);
    return;
  }
  for (int64_t m = 0; m < half; m += W) {
    const int64_t left = half - m;
    const vf low = get_as(x, from, m, left) * factor, high = get_as(x, from, half + m, left) * factor,
             c = get(unit.cos + m, left), s = get(unit.sin + m, left);
    put_as(to, into, m, low * c - high * s, left);
    put_as(to, into, half + m, high * c + low * s, left);
  }
}

// Lane i of the result is the sum of two lanes that differ in bit H: of `a` if that bit of i is clear, else
// of `b`.
template <int H>
TESSERA_INLINE vf merge_sums(vf a, vf b) {
  const vi lane = lanes(), of_b = ((lane & H) != 0) & W;
  return __builtin_shuffle(a, b, lane + of_b) + __builtin_shuffle(a, b, (lane ^ H) + of_b);
}
// Lane i: the sum of all lanes of v[i]; N = W.
template <int N>
TESSERA_INLINE vf sums_of(const vf* v) {
  if constexpr (N == 1)
    return v[0];
  else
    return merge_sums<N / 2>(sums_of<N / 2>(v), sums_of<N / 2>(v + N / 2));
}

// Returns q . k for W keys, or for fewer at the end.
template <class T>
TESSERA_INLINE vf dot_keys(const float* q, const T* k, int64_t token, int64_t count, int64_t dim) {
  vf sums[W];
  for (int64_t j = 0; j < W; ++j) {
    const T* row = k + (j < count ? j : 0) * token;
    vf sum = {};
    for (int64_t c = 0; c < dim; c += W) sum += get(q + c, dim - c) * get(row + c, dim - c);
    sums[j] = sum;
  }
  return sums_of<W>(sums);
}

// Computes scores of the unit's queries in powers of 2, -infinity for hidden keys. All queries of the group
// read a block of keys while it is in the cache.
template <class T>
void score_keys(const Unit& unit, int64_t group, const float* q, float* scores) {
  const CachedAttention& call = unit.call;
  const T* k = (const T*)row_of(call.k, unit.b, unit.head, 0);
  for (int64_t j = unit.first; j < call.keys; j += W) {
    const int64_t left = call.keys - j, count = left < W ? left : W;
    for (int64_t i = 0; i < W; ++i)
      fetch<FetchFor::later>(k + (j + kKeysAhead + i) * call.k.token, call.dim * (int64_t)sizeof(T));
    for (int64_t g = 0; g < group; ++g) {
      vf score = dot_keys(q + g * call.dim, k + j * call.k.token, call.k.token, count, call.dim);
      if (call.slopes) {
        const vi behind = lanes() + (int32_t)(j + 1 - call.keys);
        score += call.slopes[unit.head * group + g] * kLog2E * __builtin_convertvector(behind, vf);
      }
      put(scores + g * call.keys + j, score, left);
    }
    if (unit.seen)
      for (int64_t i = j; i < j + count; ++i)
        if (!unit.seen[i])
          for (int64_t g = 0; g < group; ++g) scores[g * call.keys + i] = -__builtin_inff();
  }
}

// Converts scores into weights 2^(s - the largest); returns 1 / their sum, or 0 if no key is seen.
float weigh(const Unit& unit, float* scores) {
  const int64_t keys = unit.call.keys;
  vf largest = splat(-__builtin_inff());
  for (int64_t j = unit.first; j < keys; j += W) {
    const vf score = get(scores + j, keys - j);
    largest = max(largest, keys - j < W ? lanes() < (int32_t)(keys - j) ? score : largest : score);
  }
  const float most = highest(largest);
  const bool sees = most != -__builtin_inff();
  vf total = {};
  for (int64_t j = unit.first; j < keys; j += W) {
    const int64_t left = keys - j;
    vf p = sees ? exp2_below(get(scores + j, left) - most) : vf{};
    if (left < W) p = lanes() < (int32_t)left ? p : vf{};
    total += p;
    put(scores + j, p, left);
  }
  return sees ? 1.0f / sum(total) : 0.0f;
}

// Computes N vectors of channels, from channel c on, of sum_j p_j v_j for G queries; reads each value row
// once.
template <int G, int N, class T>
TESSERA_INLINE void sum_values(const Unit& unit, const T* v, int64_t head, const float* p,
                               const float* factors, int64_t c) {
  const CachedAttention& call = unit.call;
  const int64_t left = call.dim - c;
  vf sums[G][N] = {};
  for (int64_t j = unit.first; j < call.keys; ++j) {
    const T* row = v + j * call.v.token + c;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const vf value = get(row + n * W, left - n * W);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) sums[g][n] += p[g * call.keys + j] * value;
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      put_as(row_of(call.out, unit.b, head + g, 0), call.out.element, c + n * W, sums[g][n] * factors[g],
             left - n * W);
}
template <int G, class T>
void read_values(const Unit& unit, int64_t head, const float* p, const float* factors) {
  const T* v = (const T*)row_of(unit.call.v, unit.b, unit.head, 0);
  int64_t c = 0;
  for (; c + (kChannels - 1) * W < unit.call.dim; c += kChannels * W)
    sum_values<G, kChannels>(unit, v, head, p, factors, c);
  for (; c < unit.call.dim; c += W) sum_values<G, 1>(unit, v, head, p, factors, c);
}

// Computes all queries of the unit's group. `scratch` has a row of scores and one of channels for each.
template <class K, class V>
void attend_group(const Unit& unit, int64_t group, float* scratch) {
  const CachedAttention& call = unit.call;
  float *scores = scratch, *q = scratch + group * call.keys;
  const int64_t head = unit.head * group;
  for (int64_t g = 0; g < group; ++g)
    rotate(unit, row_of(call.q, unit.b, head + g), call.q.element, q + g * call.dim, Element::f32,
           call.scale * kLog2E);
  score_keys<K>(unit, group, q, scores);
  for (int64_t g = 0; g < group;) {
    float factors[kQueries];
    const int64_t count = group - g >= kQueries ? kQueries : group - g >= 2 ? 2 : 1;
    for (int64_t i = 0; i < count; ++i) factors[i] = weigh(unit, scores + (g + i) * call.keys);
    const float* p = scores + g * call.keys;
    if (count == kQueries)
      read_values<kQueries, V>(unit, head + g, p, factors);
    else if (count == 2)
      read_values<2, V>(unit, head + g, p, factors);
    else
      read_values<1, V>(unit, head + g, p, factors);
    g += count;
  }
}

void attend(const CachedAttention& call, int64_t begin, int64_t end, float* scratch) {
  const int64_t group = call.heads / call.kv_heads, newest = call.keys - 1;
  for (int64_t number = begin; number < end; ++number) {
    const int64_t b = number / call.kv_heads, head = number % call.kv_heads;
    const int64_t first = call.window > 0 && call.window < call.keys ? call.keys - call.window : 0;
    const int64_t angles = b * call.angles_batch;
    const Unit unit{call,
                    b,
                    head,
                    call.cos ? call.cos + angles : nullptr,
                    call.sin ? call.sin + angles : nullptr,
                    call.seen ? call.seen + b * call.seen_batch : nullptr,
                    first};
    Unit plain = unit;
    plain.cos = nullptr;
    rotate(unit, row_of(call.new_k, b, head), call.new_k.element, row_of(call.k, b, head, newest),
           call.k.element, 1);
    rotate(plain, row_of(call.new_v, b, head), call.new_v.element, row_of(call.v, b, head, newest),
           call.v.element, 1);
    const bool wide_keys = call.k.element == Element::f32, wide_values = call.v.element == Element::f32;
    if (wide_keys && wide_values)
      attend_group<float, float>(unit, group, scratch);
    else if (wide_keys)
      attend_group<float, bf16>(unit, group, scratch);
    else if (wide_values)
      attend_group<bf16, float>(unit, group, scratch);
    else
      attend_group<bf16, bf16>(unit, group, scratch);
  }
}

}  // namespace

extern const CachedAttentionFunctions cached_attention_functions;
const CachedAttentionFunctions cached_attention_functions = {attend};

}  // namespace tessera::kernels::TESSERA_ISA
