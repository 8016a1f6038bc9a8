#include "ops/cached_attention.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "kernels/cached_attention/cached_attention.h"
#include "ops/gpu.h"

namespace tessera::ops {
namespace {

void check_options(const torch::Tensor& q, int64_t keys, const CachedAttentionOptions& options) {
  const int64_t batch = q.size(0), heads = q.size(1), dim = q.size(3);
  const auto& [cos, sin, seen, slopes, window, before] = options;
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
  check(!before.defined() ||
            (before.scalar_type() == torch::kInt64 && before.numel() == 1 && before.device() == q.device()),
        "cached attention: the number of tokens before is ",
        before.defined() ? before.sizes() : torch::IntArrayRef(), ", must be int64 [1] on the device of q");
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

// Allocates the result for q [batch, heads, 1, d], with the memory order [batch, 1, heads, d].
torch::Tensor result_for(const torch::Tensor& q) {
  return torch::empty({q.size(0), 1, q.size(1), q.size(3)}, q.options()).transpose(1, 2);
}

// Returns true for keys that the new token does not see, to be broadcast over [batch, heads, 1, keys]; undefined if it sees all.
// `offset` [keys]: the places of keys after that of the token.
torch::Tensor hidden_keys(const CachedAttentionOptions& options, const torch::Tensor& offset) {
  torch::Tensor hidden;
  const auto hide = [&](const torch::Tensor& keys) {
    hidden = hidden.defined() ? hidden.logical_or(keys) : keys;
  };
  if (options.seen.defined()) hide(options.seen.logical_not().unsqueeze(1).unsqueeze(1));
  if (options.window > 0) hide((offset <= -options.window).view({1, 1, 1, -1}));
  if (options.before.defined()) hide((offset > 0).view({1, 1, 1, -1}));
  return hidden;
}

// --- on a GPU

template <class Pointer>
kernels::gpu::HeadsOf<Pointer> heads_of(const torch::Tensor& x) {
  return {static_cast<Pointer>(x.data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

kernels::gpu::CachedAttention gpu_call(const torch::Tensor& q, const torch::Tensor& new_k,
                                       const torch::Tensor& new_v, const torch::Tensor& keys,
                                       const torch::Tensor& values, int64_t window) {
  kernels::gpu::CachedAttention call;
  call.batch = q.size(0), call.heads = q.size(1), call.kv_heads = keys.size(1);
  call.room = keys.size(2), call.dim = q.size(3), call.window = window;
  call.scale = 1 / std::sqrt(static_cast<float>(call.dim));
  call.q = heads_of<const uint16_t*>(q), call.new_k = heads_of<const uint16_t*>(new_k);
  call.new_v = heads_of<const uint16_t*>(new_v);
  call.k = heads_of<uint16_t*>(keys), call.v = heads_of<uint16_t*>(values);
  return call;
}

// Returns the result of a kernel; undefined if none takes the call.
torch::Tensor on_gpu(const torch::Tensor& q, const torch::Tensor& new_k, const torch::Tensor& new_v,
                     const torch::Tensor& keys, const torch::Tensor& values,
                     const CachedAttentionOptions& options) {
  const auto place = gradients_wanted() ? std::nullopt : gpu_place(q);
  if (!place) return {};
  for (const torch::Tensor* x : {&q, &new_k, &new_v, &keys, &values})
    if (x->scalar_type() != torch::kBFloat16 || x->stride(3) != 1) return {};
  kernels::gpu::CachedAttention call = gpu_call(q, new_k, new_v, keys, values, options.window);
  const auto* form =
      kernels::gpu::choose_form(kernels::gpu::table()->cached_attention, place->capability, call);
  if (!form) return {};
  const auto table = [&](const torch::Tensor& x) { return x.defined() ? floats(x.to(q.device())) : x; };
  const torch::Tensor cos = table(options.cos), sin = table(options.sin), slopes = table(options.slopes),
                      seen = options.seen.defined() ? options.seen.contiguous() : options.seen;
  const torch::Tensor before = options.before.defined()
                                   ? options.before
                                   : torch::full({1}, call.room - 1, q.options().dtype(torch::kInt64));
  const torch::Tensor out = result_for(q), partial = torch::empty({kernels::gpu::cached_numbers(call)},
                                                                  q.options().dtype(torch::kFloat32));
  call.out = heads_of<uint16_t*>(out), call.before = before.const_data_ptr<int64_t>();
  call.partial = partial.mutable_data_ptr<float>();
  call.cos = float_pointer(cos), call.sin = float_pointer(sin), call.slopes = float_pointer(slopes);
  call.angles_sample = cos.defined() && cos.size(0) > 1 ? cos.stride(0) : 0;
  if (seen.defined())
    call.seen = static_cast<const uint8_t*>(seen.const_data_ptr()), call.seen_sample = call.room;
  run_on_gpu("cached attention", *place, *form, call);
  return out;
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
  const torch::TensorOptions integers = q.options().dtype(torch::kInt64);
  const torch::Tensor place =
      options.before.defined() ? options.before.view({1}) : torch::full({1}, count - 1, integers);
  keys.index_copy_(2, place, rotated(new_k));
  values.index_copy_(2, place, new_v);
  const torch::Tensor offset = torch::arange(count, integers) - place;  // of each key from the new token
  const auto of_queries = [&](const torch::Tensor& x) {  // [batch, kv_heads, …] -> [batch, heads, …]
    return x.unsqueeze(2).expand({-1, -1, group, -1, -1}).flatten(1, 2);
  };
  torch::Tensor all_keys = of_queries(keys), all_values = of_queries(values);
  if (options.before.defined())  // memory without a token may hold NaN
    all_values = all_values.masked_fill((offset > 0).view({1, 1, count, 1}), 0);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  torch::Tensor scores = torch::matmul(rotated(q) * scale, all_keys.transpose(-2, -1).to(q.scalar_type()));
  if (options.slopes.defined())
    scores = scores + options.slopes.to(scores.options()).view({1, -1, 1, 1}) * offset;
  const torch::Tensor hidden = hidden_keys(options, offset);
  if (hidden.defined()) scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  torch::Tensor weights = torch::softmax(scores, -1);
  if (hidden.defined()) weights = weights.masked_fill(hidden, 0);  // a token without visible keys gets zeros
  return torch::matmul(weights, all_values.to(weights.scalar_type()));
}

torch::Tensor cached_attention(const torch::Tensor& q, const torch::Tensor& new_k, const torch::Tensor& new_v,
                               const torch::Tensor& keys, const torch::Tensor& values,
                               const CachedAttentionOptions& options) {
  check_shapes(q, new_k, new_v, keys, values, options);
  if (const torch::Tensor out = on_gpu(q, new_k, new_v, keys, values, options); out.defined()) return out;
  if (!fuses({&q, &new_k, &new_v, &keys, &values}))
    return cached_attention_unfused(q, new_k, new_v, keys, values, options);
  const Profiled profiled("cached attention");
  const torch::Tensor out = result_for(q);
  const torch::Tensor cos = floats(options.cos), sin = floats(options.sin), slopes = floats(options.slopes);
  kernels::CachedAttention call;
  call.batch = q.size(0), call.heads = q.size(1), call.kv_heads = keys.size(1);
  call.keys = options.before.defined() ? options.before.item<int64_t>() + 1 : keys.size(2);
  check(call.keys >= 1 && call.keys <= keys.size(2), "cached attention: ", call.keys - 1,
        " tokens before the new one, the cache has room for ", keys.size(2));
  call.dim = q.size(3), call.scale = 1 / std::sqrt(static_cast<float>(call.dim));
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
    call.seen = static_cast<const uint8_t*>(seen.const_data_ptr()), call.seen_batch = keys.size(2);
  call.slopes = float_pointer(slopes), call.window = options.window;
  kernels::cached_attention(call);
  return out;
}

}  // namespace tessera::ops
