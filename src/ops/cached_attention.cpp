#include "ops/cached_attention.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "kernels/cached_attention/cached_attention.h"
#include "ops/inference.h"

namespace tessera::ops {
namespace {

void check_options(const torch::Tensor& q, int64_t keys, const CachedAttentionOptions& options) {
  const int64_t batch = q.size(0), heads = q.size(1), dim = q.size(3);
  const auto& [cos, sin, seen, slopes, window] = options;
  const bool rotates = cos.defined() || sin.defined();
  check(!rotates || (dim % 2 == 0 && cos.dim() == 2 && cos.sizes() == sin.sizes() && cos.size(1) == dim / 2 &&
                     (cos.size(0) == 1 || cos.size(0) == batch)),
        "cached attention: cosines are ", cos.sizes(), " and sines ", sin.sizes(), ", must be [1 or ", batch,
        ", ", dim / 2, "]");
  check(!seen.defined() || (seen.dim() == 2 && seen.size(0) == batch && seen.size(1) == keys &&
                            seen.scalar_type() == torch::kBool),
        "cached attention: seen is ", seen.sizes(), ", must be [", batch, ", ", keys, "] of bool");
  check(!slopes.defined() || slopes.numel() == heads, "cached attention: slopes are ", slopes.sizes(),
        ", must be [", heads, "]");
  check(window >= 0, "cached attention: a window of ", window, " keys, must be 0 or more");
}

void check_shapes(const torch::Tensor& q, const torch::Tensor& new_k, const torch::Tensor& new_v,
                  const torch::Tensor& keys, const torch::Tensor& values,
                  const CachedAttentionOptions& options) {
  check(q.dim() == 4 && q.size(2) == 1 && keys.dim() == 4 && values.sizes() == keys.sizes() &&
            keys.size(1) >= 1 && keys.size(2) >= 1 && q.size(0) == keys.size(0) &&
            q.size(3) == keys.size(3) && q.size(1) % keys.size(1) == 0 && new_k.sizes() == new_v.sizes() &&
            new_k.sizes() == keys.slice(2, 0, 1).sizes(),
        "cached attention: q ", q.sizes(), ", new k ", new_k.sizes(), " and v ", new_v.sizes(), ", cache ",
        keys.sizes(), " and ", values.sizes());
  check_options(q, keys.size(2), options);
}

bool fuses(std::initializer_list<const torch::Tensor*> tensors) {
  if (gradients_wanted() || !inference_settings().fused) return false;
  for (const torch::Tensor* x : tensors)
    if (!x->device().is_cpu() || x->stride(3) != 1 ||
        (x->scalar_type() != torch::kFloat32 && x->scalar_type() != torch::kBFloat16))
      return false;
  return true;
}

template <class View>
View cache_view(const torch::Tensor& x) {
  return {x.data_ptr(), element_of(x), x.stride(0), x.stride(1), x.stride(2)};
}

}  // namespace

torch::Tensor rotate_halves(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const torch::Tensor wide = x.to(cos.scalar_type()), low = wide.slice(-1, 0, half),
                      high = wide.slice(-1, half);
  return torch::cat({low * cos - high * sin, high * cos + low * sin}, -1).to(x.scalar_type());
}

torch::Tensor cached_attention_unfused(const torch::Tensor& q, const torch::Tensor& new_k,
                                       const torch::Tensor& new_v, const torch::Tensor& keys,
                                       const torch::Tensor& values, const CachedAttentionOptions& options) {
  check_shapes(q, new_k, new_v, keys, values, options);
  const int64_t count = keys.size(2), group = q.size(1) / keys.size(1);
  const auto rotated = [&](const torch::Tensor& x) {
    if (!options.cos.defined()) return x;
    const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    const auto table = [&](const torch::Tensor& t) {
      return t.to(x.device(), wide).view({t.size(0), 1, 1, -1});
    };
    return rotate_halves(x, table(options.cos), table(options.sin));
  };
  keys.select(2, count - 1).copy_(rotated(new_k).select(2, 0));
  values.select(2, count - 1).copy_(new_v.select(2, 0));
  const torch::Tensor all_keys = keys.repeat_interleave(group, 1),
                      all_values = values.repeat_interleave(group, 1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  torch::Tensor scores = torch::matmul(rotated(q) * scale, all_keys.transpose(-2, -1).to(q.scalar_type()));
  const torch::Tensor behind = torch::arange(1 - count, 1, scores.options());
  if (options.slopes.defined())
    scores = scores + options.slopes.to(scores.options()).view({1, -1, 1, 1}) * behind;
  torch::Tensor hidden;
  if (options.seen.defined()) hidden = options.seen.logical_not().view({q.size(0), 1, 1, count});
  if (options.window > 0) {
    const torch::Tensor far = (behind <= -static_cast<double>(options.window)).view({1, 1, 1, count});
    hidden = hidden.defined() ? hidden.logical_or(far) : far;
  }
  if (hidden.defined()) scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  torch::Tensor weights = torch::softmax(scores, -1);
  if (hidden.defined()) weights = weights.masked_fill(hidden, 0);  // a token without visible keys gets zeros
  return torch::matmul(weights, all_values.to(weights.scalar_type()));
}

torch::Tensor cached_attention(const torch::Tensor& q, const torch::Tensor& new_k, const torch::Tensor& new_v,
                               const torch::Tensor& keys, const torch::Tensor& values,
                               const CachedAttentionOptions& options) {
  check_shapes(q, new_k, new_v, keys, values, options);
  if (!fuses({&q, &new_k, &new_v, &keys, &values}))
    return cached_attention_unfused(q, new_k, new_v, keys, values, options);
  const Profiled profiled("cached attention");
  const torch::Tensor out = torch::empty({q.size(0), 1, q.size(1), q.size(3)}, q.options()).transpose(1, 2);
  const torch::Tensor cos = floats(options.cos), sin = floats(options.sin), slopes = floats(options.slopes);
  kernels::CachedAttention call;
  call.batch = q.size(0), call.heads = q.size(1), call.kv_heads = keys.size(1);
  call.keys = keys.size(2), call.dim = q.size(3);
  call.scale = 1 / std::sqrt(static_cast<float>(call.dim));
  call.q = cache_view<kernels::HeadRows>(q), call.new_k = cache_view<kernels::HeadRows>(new_k),
  call.new_v = cache_view<kernels::HeadRows>(new_v);
  call.k = cache_view<kernels::HeadRowsOut>(keys), call.v = cache_view<kernels::HeadRowsOut>(values);
  call.out = cache_view<kernels::HeadRowsOut>(out);
  if (cos.defined()) {
    call.cos = float_pointer(cos), call.sin = float_pointer(sin);
    call.angles_batch = cos.size(0) > 1 ? cos.stride(0) : 0;
  }
  const torch::Tensor seen = options.seen.defined() ? options.seen.contiguous() : torch::Tensor();
  if (seen.defined())
    call.seen = static_cast<const uint8_t*>(seen.const_data_ptr()), call.seen_batch = call.keys;
  call.slopes = float_pointer(slopes), call.window = options.window;
  kernels::cached_attention(call);
  return out;
}

}  // namespace tessera::ops
