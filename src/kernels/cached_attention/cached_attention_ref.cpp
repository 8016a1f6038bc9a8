// The definition.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cached_attention/cached_attention.h"
#include "kernels/reference.h"

namespace tessera::kernels::reference {
namespace {

std::vector<double> rotated(const CachedAttention& call, int64_t sample, std::vector<double> x) {
  if (!call.cos) return x;
  const std::vector<double> before = x;
  const int64_t half = call.dim / 2;
  for (int64_t m = 0; m < half; ++m) {
    const double c = call.cos[sample * call.angles_batch + m], s = call.sin[sample * call.angles_batch + m];
    x[m] = before[m] * c - before[m + half] * s;
    x[m + half] = before[m + half] * c + before[m] * s;
  }
  return x;
}

void attend_head(const CachedAttention& call, int64_t b, int64_t head, const std::vector<double>& keys,
                 const std::vector<double>& values) {
  const std::vector<double> q = rotated(call, b, read_rows(call.q, {b, head, 1, false}, call.dim));
  std::vector<double> scores(static_cast<size_t>(call.keys));
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < call.keys; ++j) {
    const bool seen = (!call.seen || call.seen[b * call.seen_batch + j]) &&
                      (call.window == 0 || j >= call.keys - call.window);
    double score = 0;
    for (int64_t c = 0; c < call.dim; ++c) score += q[c] * keys[j * call.dim + c];
    score =
        score * call.scale + (call.slopes ? call.slopes[head] * static_cast<double>(j + 1 - call.keys) : 0);
    scores[j] = seen ? score : -std::numeric_limits<double>::infinity();
    most = std::max(most, scores[j]);
  }
  std::vector<double> out(static_cast<size_t>(call.dim));
  double total = 0;
  for (int64_t j = 0; j < call.keys; ++j) {
    const double p = std::isinf(most) ? 0 : std::exp(scores[j] - most);
    total += p;
    for (int64_t c = 0; c < call.dim; ++c) out[c] += p * values[j * call.dim + c];
  }
  for (double& number : out) number = total > 0 ? number / total : 0;
  write_rows(out, call.out, {b, head, 1, false}, call.dim);
}

void attend(const CachedAttention& call, int64_t begin, int64_t end, float*) {
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t b = unit / call.kv_heads, head = unit % call.kv_heads, group = call.heads / call.kv_heads;
    const auto newest = [&](const HeadRowsOut& cache) {
      const int64_t at = (call.keys - 1) * cache.token * (cache.element == Element::f32 ? 4 : 2);
      return HeadRowsOut{static_cast<char*>(cache.data) + at, cache.element, cache.batch, cache.head,
                         cache.token};
    };
    const HeadAt one{b, head, 1, false}, all{b, head, call.keys, false};
    write_rows(rotated(call, b, read_rows(call.new_k, one, call.dim)), newest(call.k), one, call.dim);
    write_rows(read_rows(call.new_v, one, call.dim), newest(call.v), one, call.dim);
    const auto in = [](const HeadRowsOut& cache) {
      return HeadRows{cache.data, cache.element, cache.batch, cache.head, cache.token};
    };
    const std::vector<double> keys = read_rows(in(call.k), all, call.dim),
                              values = read_rows(in(call.v), all, call.dim);
    for (int64_t i = 0; i < group; ++i) attend_head(call, b, head * group + i, keys, values);
  }
}

}  // namespace

extern const CachedAttentionFunctions cached_attention_functions;
const CachedAttentionFunctions cached_attention_functions = {attend};

}  // namespace tessera::kernels::reference
