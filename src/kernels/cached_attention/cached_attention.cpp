// Attention of one token to a cache, for one instruction set. Per-ISA.
//
// A head of keys at a time: its cache is read once from memory, and again from the processor's own for the further heads
// of queries of its group.
#include "kernels/cached_attention/cached_attention.h"

#include "kernels/rows.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr int kChannels = 4;  // vectors of channels whose sums stay in registers

// One sample and one head of keys.
struct Unit {
  const CachedAttention& call;
  int64_t b, head;
  const float *cos, *sin;  // null: no rotation
  const uint8_t* seen;     // null: all
  int64_t first;           // key that the window begins with
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

template <class T>
TESSERA_INLINE float dot(const float* q, const T* k, int64_t dim) {
  vf a = {}, b = {};
  int64_t c = 0;
  for (; c + 2 * W <= dim; c += 2 * W) {
    a += load(q + c) * load(k + c);
    b += load(q + c + W) * load(k + c + W);
  }
  for (; c < dim; c += W) a += get(q + c, dim - c) * get(k + c, dim - c);
  return sum(a + b);
}

// Scores in powers of 2, and the largest of them; of keys that are not seen -infinity.
template <class T>
float score_keys(const Unit& unit, const float* q, float slope, float* scores) {
  const CachedAttention& call = unit.call;
  const T* k = (const T*)row_of(call.k, unit.b, unit.head, 0);
  float most = -__builtin_inff();
  for (int64_t j = unit.first; j < call.keys; ++j) {
    __builtin_prefetch(k + (j + 4) * call.k.token);
    const float score = dot(q, k + j * call.k.token, call.dim) + slope * (float)(j + 1 - call.keys);
    scores[j] = unit.seen && !unit.seen[j] ? -__builtin_inff() : score;
    most = most > scores[j] ? most : scores[j];
  }
  return most;
}

// N vectors of channels of sum_j p_j v_j, divided by the sum of p.
template <int N, class T>
TESSERA_INLINE void sum_values(const Unit& unit, const T* v, const float* p, float factor, void* out,
                               int64_t c) {
  const CachedAttention& call = unit.call;
  const int64_t left = call.dim - c;
  vf even[N] = {}, odd[N] = {};
  int64_t j = unit.first;
  for (; j + 1 < call.keys; j += 2) {
    const T *a = v + j * call.v.token + c, *b = a + call.v.token;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      even[n] += p[j] * get(a + n * W, left - n * W);
      odd[n] += p[j + 1] * get(b + n * W, left - n * W);
    }
  }
  if (j < call.keys)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) even[n] += p[j] * get(v + j * call.v.token + c + n * W, left - n * W);
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n)
    put_as(out, call.out.element, c + n * W, (even[n] + odd[n]) * factor, left - n * W);
}

template <class T>
void read_values(const Unit& unit, const float* p, float factor, void* out) {
  const T* v = (const T*)row_of(unit.call.v, unit.b, unit.head, 0);
  int64_t c = 0;
  for (; c + (kChannels - 1) * W < unit.call.dim; c += kChannels * W)
    sum_values<kChannels>(unit, v, p, factor, out, c);
  for (; c < unit.call.dim; c += W) sum_values<1>(unit, v, p, factor, out, c);
}

void attend_head(const Unit& unit, int64_t head, float* scratch) {
  const CachedAttention& call = unit.call;
  float *scores = scratch, *q = scratch + call.keys;
  rotate(unit, row_of(call.q, unit.b, head), call.q.element, q, Element::f32, call.scale * kLog2E);
  const float slope = call.slopes ? call.slopes[head] * kLog2E : 0;
  const float most = call.k.element == Element::f32 ? score_keys<float>(unit, q, slope, scores)
                                                    : score_keys<bf16>(unit, q, slope, scores);
  void* out = row_of(call.out, unit.b, head, 0);
  vf total = {};
  const bool sees = most != -__builtin_inff();
  for (int64_t j = unit.first; j < call.keys; j += W) {
    const int64_t left = call.keys - j;
    vf p = sees ? exp2_below(get(scores + j, left) - most) : vf{};
    if (left < W) p = lanes() < (int32_t)left ? p : vf{};
    total += p;
    put(scores + j, p, left);
  }
  const float factor = sees ? 1.0f / sum(total) : 0.0f;
  if (call.v.element == Element::f32)
    read_values<float>(unit, scores, factor, out);
  else
    read_values<bf16>(unit, scores, factor, out);
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
    for (int64_t i = 0; i < group; ++i) attend_head(unit, head * group + i, scratch);
  }
}

}  // namespace

extern const CachedAttentionFunctions cached_attention_functions;
const CachedAttentionFunctions cached_attention_functions = {attend};

}  // namespace tessera::kernels::TESSERA_ISA
