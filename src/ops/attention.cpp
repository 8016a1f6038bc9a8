#include "ops/attention.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "ops/gpu.h"
#include "ops/inference.h"

namespace tessera::ops {
namespace {

void check_shapes(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                  const AttentionOptions& options) {
  check(q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) &&
            q.size(1) == k.size(1) && q.size(3) == k.size(3),
        "attention: q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
        " must be [batch, heads, tokens, d], k and v with the same tokens");
  check(options.first_query >= 0, "attention: the first query has position ", options.first_query,
        ", must be 0 or more");
  const auto check_angles = [&](const torch::Tensor& cos, const torch::Tensor& sin, int64_t tokens) {
    check(cos.sizes() == sin.sizes() && cos.size(-2) >= tokens && 2 * cos.size(-1) <= q.size(3) &&
              (cos.dim() == 2 || (cos.dim() == 3 && cos.size(0) == q.size(1))),
          "attention: angles ", cos.sizes(), " do not fit ", tokens, " tokens of ", q.sizes());
  };
  const int64_t queries = options.first_query + q.size(2), keys = k.size(2);
  const bool own = options.key_cos.defined();
  if (options.cos.defined()) check_angles(options.cos, options.sin, own ? queries : std::max(queries, keys));
  if (own) check_angles(options.key_cos, options.key_sin, keys);
}

// Returns the bias with four axes, the first one repeated over the batch.
torch::Tensor repeated(const torch::Tensor& bias, int64_t batch) {
  torch::Tensor four = bias;
  while (four.dim() < 4) four = four.unsqueeze(0);
  const int64_t entries = four.size(0);
  if (entries == 1 || entries == batch) return four;
  check(entries > 0 && batch % entries == 0, "attention: a bias ", bias.sizes(), " does not fit a batch of ",
        batch);
  return four.repeat({batch / entries, 1, 1, 1});
}

// True where a query sees a key; undefined if all see all.
torch::Tensor seen(const AttentionOptions& options, int64_t queries, int64_t keys, torch::Device device) {
  if (!options.causal && options.window == 0) return {};
  const auto integers = torch::TensorOptions(torch::kLong).device(device);
  const torch::Tensor ahead =
      torch::arange(keys, integers) -
      torch::arange(options.first_query, options.first_query + queries, integers).unsqueeze(1);
  torch::Tensor mask = options.causal ? ahead <= 0 : torch::ones_like(ahead, torch::kBool);
  if (options.window > 0) mask = mask & (ahead.abs() < options.window);
  return mask;
}

}  // namespace

torch::Tensor rotate_pairs(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin) {
  if (const torch::Tensor y = rotate_on_gpu(x, cos, sin); y.defined()) return y;
  const int64_t channels = 2 * cos.size(-1);
  const torch::Tensor pairs = x.slice(-1, 0, channels).to(cos.scalar_type()).unflatten(-1, {channels / 2, 2});
  const torch::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  const torch::Tensor rotated =
      torch::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2).to(x.scalar_type());
  return channels == x.size(-1) ? rotated : torch::cat({rotated, x.slice(-1, channels)}, -1);
}

namespace {

// Rotates q and k by their tables.
std::pair<torch::Tensor, torch::Tensor> rotated_pair(const torch::Tensor& q, const torch::Tensor& k,
                                                     const AttentionOptions& options) {
  const auto rotated = [](const torch::Tensor& x, int64_t first, const torch::Tensor& cos,
                          const torch::Tensor& sin) {
    if (!cos.defined()) return x;
    const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    const auto table = [&](const torch::Tensor& t) {
      return t.slice(-2, first, first + x.size(2)).to(torch::TensorOptions(wide).device(x.device()));
    };
    return rotate_pairs(x, table(cos), table(sin));
  };
  const bool own = options.key_cos.defined();
  return {rotated(q, options.first_query, options.cos, options.sin),
          rotated(k, 0, own ? options.key_cos : options.cos, own ? options.key_sin : options.sin)};
}

std::optional<torch::Tensor> bias_of(const AttentionOptions& options, const torch::Tensor& q) {
  if (!options.bias.defined()) return std::nullopt;
  return repeated(options.bias, q.size(0)).to(q.scalar_type());
}

// Applies softmax and masks to scores of rotated q and k.
torch::Tensor weights_of(const torch::Tensor& q, const torch::Tensor& k, const AttentionOptions& options) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  torch::Tensor scores = torch::matmul(q * scale, k.transpose(-2, -1));
  if (const auto bias = bias_of(options, q)) scores = scores + *bias;
  const torch::Tensor mask = seen(options, q.size(2), k.size(2), q.device());
  torch::Tensor blind;  // queries without visible keys: their sums are empty
  if (mask.defined()) {
    blind = ~mask.any(-1, /*keepdim=*/true);
    scores = scores.masked_fill(~mask & ~blind, -std::numeric_limits<double>::infinity());
  }
  torch::Tensor p = torch::softmax(scores, -1);
  if (blind.defined()) p = p.masked_fill(blind, 0);
  if (options.future_weight != 1) {
    const torch::Tensor earlier =
        seen({.causal = true, .first_query = options.first_query}, q.size(2), k.size(2), q.device());
    p = torch::where(earlier, p, p * options.future_weight);
  }
  return p;
}

}  // namespace

torch::Tensor attention_weights(const torch::Tensor& q, const torch::Tensor& k,
                                const AttentionOptions& options) {
  check_shapes(q, k, k, options);
  const auto [rq, rk] = rotated_pair(q, k, options);
  return weights_of(rq, rk, options);
}

namespace {

// Attention of rotated q and k, composed.
torch::Tensor composed(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                       const AttentionOptions& options, torch::Tensor* weights) {
  const bool shifted = options.first_query > 0 || options.window > 0;
  if (!weights && !shifted && options.future_weight == 1 && !(options.bias.defined() && options.causal))
    return at::scaled_dot_product_attention(q, k, v, bias_of(options, q), 0, options.causal);
  const torch::Tensor p = weights_of(q, k, options);
  if (weights) *weights = p;
  return torch::matmul(p, v.to(p.scalar_type()));
}

// The same by a kernel of a GPU, or composed if none takes it.
torch::Tensor on_gpu_or_composed(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                 const AttentionOptions& options) {
  const auto [rotated_q, rotated_k] = rotated_pair(q, k, options);
  const torch::Tensor out = attention_on_gpu(rotated_q, rotated_k, v, options);
  return out.defined() ? out : composed(rotated_q, rotated_k, v, options, nullptr);
}

}  // namespace

torch::Tensor attention_unfused(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                const AttentionOptions& options, torch::Tensor* weights) {
  check_shapes(q, k, v, options);
  const auto [rq, rk] = rotated_pair(q, k, options);
  return composed(rq, rk, v, options, weights);
}

bool attention_fuses(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  const auto fits = [](const torch::Tensor& x) {
    return x.device().is_cpu() && (x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kBFloat16);
  };
  return inference_settings().fused && fits(q) && fits(k) && fits(v) && !gpu_place(q);
}

namespace {

kernels::HeadRows heads_of(const torch::Tensor& x) {
  return {x.const_data_ptr(), element_of(x), x.stride(0), x.stride(1), x.stride(2)};
}
kernels::HeadRowsOut heads_to(const torch::Tensor& x) {
  return {x.mutable_data_ptr(), element_of(x), x.stride(0), x.stride(1), x.stride(2)};
}

// q, k and v inside a packed tensor, or three separate tensors.
struct Parts {
  torch::Tensor q, k, v;
};
Parts parts_of(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  if (k.defined()) return {q, k, v};
  const auto part = [&](int64_t i) { return q.select(2, i).transpose(1, 2); };
  return {part(0), part(1), part(2)};
}

// The parts of a packed tensor with one gradient for all; those of selected parts are three tensors of the whole size.
Parts unbound(const torch::Tensor& qkv) {
  const auto parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);
  return {parts[0], parts[1], parts[2]};
}

// Allocates [batch, heads, tokens, d] with the memory order [batch, tokens, heads, d].
torch::Tensor by_token(const torch::Tensor& like) {
  return torch::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options())
      .transpose(1, 2);
}

// Cosines and sines in float32, or none.
struct RotaryTables {
  RotaryTables() = default;
  RotaryTables(const torch::Tensor& cosines, const torch::Tensor& sines) {
    if (!cosines.defined()) return;
    cos = cosines.to(torch::kFloat32).contiguous();
    sin = sines.to(torch::kFloat32).contiguous();
  }
  // Returns the rows of the table from token `first` on.
  kernels::Rotary rotary(int64_t first) const {
    if (!cos.defined()) return {};
    const int64_t token = cos.stride(-2), at = first * token;
    return {cos.const_data_ptr<float>() + at, sin.const_data_ptr<float>() + at,
            cos.dim() == 3 ? cos.stride(0) : 0, token, cos.size(-1)};
  }
  torch::Tensor cos, sin;
};

// The masks, and the tensors as the kernel's arguments.
struct Request : torch::CustomClassHolder {
  kernels::AttentionMask mask;
  RotaryTables queries, keys;
  torch::Tensor bias;  // float32, four axes
  bool fixed_point = false;

  kernels::AttentionShape shape(const Parts& p) const {
    return {p.q.size(0), p.q.size(1), p.q.size(2),
            p.k.size(2), p.q.size(3), 1 / std::sqrt(static_cast<float>(p.q.size(3)))};
  }
  kernels::Rotary q_rotary() const { return queries.rotary(mask.first_query); }
  kernels::Rotary k_rotary() const { return keys.rotary(0); }
  kernels::AttentionBias added() const {
    if (!bias.defined()) return {};
    const auto stride = [&](int64_t axis) { return bias.size(axis) == 1 ? 0 : bias.stride(axis); };
    return {bias.const_data_ptr<float>(), bias.size(0), stride(0), stride(1), stride(2)};
  }
};

c10::intrusive_ptr<Request> request_of(const Parts& p, const AttentionOptions& options) {
  const int64_t queries = p.q.size(2), keys = p.k.size(2);
  auto request = c10::make_intrusive<Request>();
  request->fixed_point = fused_arithmetic(p.q) == kernels::Arithmetic::int8;
  request->mask = {options.causal, options.window, options.first_query,
                   static_cast<float>(options.future_weight)};
  request->queries = {options.cos, options.sin};
  request->keys =
      options.key_cos.defined() ? RotaryTables(options.key_cos, options.key_sin) : request->queries;
  if (options.bias.defined()) {
    torch::Tensor bias = options.bias.detach().to(torch::kFloat32);
    while (bias.dim() < 4) bias = bias.unsqueeze(0);
    const auto fits = [&](int64_t axis, int64_t size) {
      return bias.size(axis) == size || bias.size(axis) == 1;
    };
    check(fits(1, p.q.size(1)) && fits(2, queries) && fits(3, keys) && bias.size(0) > 0 &&
              p.q.size(0) % bias.size(0) == 0,
          "attention: a bias ", options.bias.sizes(), " does not fit scores [", p.q.size(0), ", ",
          p.q.size(1), ", ", queries, ", ", keys, "]");
    request->bias = bias.expand({-1, -1, -1, keys}).contiguous();
  }
  return request;
}

using Optional = std::optional<torch::Tensor>;  // an undefined tensor may not be an argument of a node

Optional given(const torch::Tensor& tensor) { return tensor.defined() ? Optional(tensor) : std::nullopt; }

// Runs the kernel; `lse`, if not null, gets the data for the backward pass.
torch::Tensor run_forward(const Parts& p, const Request& request, torch::Tensor* lse) {
  const torch::Tensor out = by_token(p.q);
  kernels::AttentionForward call{request.shape(p),   request.mask,       heads_of(p.q),
                                 heads_of(p.k),      heads_of(p.v),      heads_to(out),
                                 request.q_rotary(), request.k_rotary(), request.added()};
  call.fixed_point = request.fixed_point;
  if (lse) {
    *lse = torch::empty(out.sizes().slice(0, 3), out.options().dtype(torch::kFloat32));
    call.lse = lse->mutable_data_ptr<float>();
  }
  const Profiled profiled("attention");
  kernels::attention_forward(call);
  return out;
}

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  // `q` alone is a packed [batch, tokens, 3, heads, d]. `bias` is an argument only for its gradient.
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& q,
                               const Optional& k_given, const Optional& v_given, const Optional& bias,
                               const c10::intrusive_ptr<Request>& request) {
    const torch::Tensor k = k_given.value_or(torch::Tensor()), v = v_given.value_or(torch::Tensor());
    torch::Tensor lse;
    const torch::Tensor out = run_forward(parts_of(q, k, v), *request, &lse);
    // Backward reads the tables from `request`. Saving them makes autograd reject changes before the backward
    // pass.
    const auto kept = [](const torch::Tensor& x) {
      return x.defined() && !x.is_inference() ? x : torch::Tensor();
    };
    ctx->save_for_backward({q, k, v, out, lse, kept(request->bias), kept(request->queries.cos),
                            kept(request->queries.sin), kept(request->keys.cos), kept(request->keys.sin)});
    ctx->saved_data["request"] = c10::IValue::make_capsule(request);
    ctx->saved_data["bias"] = bias && bias->requires_grad() ? bias->sizes().vec() : std::vector<int64_t>{};
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("attention");
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["request"].toCapsule();
    const auto& request = static_cast<Request&>(*holder);
    const torch::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    const Parts p = parts_of(q, k, v);
    torch::Tensor dout = gradients[0].to(out.scalar_type());
    if (dout.stride(3) != 1) dout = dout.contiguous();
    torch::Tensor dq, dk, dv;
    if (k.defined())
      dq = by_token(q), dk = by_token(k), dv = by_token(v);
    else
      dq = torch::empty_like(q);
    const Parts d = parts_of(dq, dk, dv);
    const auto bias_sizes = ctx->saved_data["bias"].toIntVector();
    torch::Tensor dbias;
    if (!bias_sizes.empty()) {
      const torch::Tensor& b = request.bias;
      dbias = torch::empty({b.size(0), b.size(1), p.q.size(2), p.k.size(2)}, b.options());
    }
    const Profiled profiled("attention backward");
    kernels::attention_backward({request.shape(p), request.mask, heads_of(p.q), heads_of(p.k), heads_of(p.v),
                                 heads_of(out), saved[4].const_data_ptr<float>(), heads_of(dout),
                                 heads_to(d.q), heads_to(d.k), heads_to(d.v), request.q_rotary(),
                                 request.k_rotary(), request.added(),
                                 dbias.defined() ? dbias.mutable_data_ptr<float>() : nullptr});
    if (dbias.defined()) dbias = at::sum_to(dbias, bias_sizes);
    return {dq, dk, dv, dbias, {}};
  }
};

// Casts to autocast's precision if it is on, like ATen's own attention.
torch::Tensor cast(const torch::Tensor& x) {
  if (!x.is_floating_point() || x.scalar_type() == torch::kFloat64) return x;
  const auto device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? x.to(at::autocast::get_autocast_dtype(device)) : x;
}

bool any_needs_gradient(std::initializer_list<torch::Tensor> tensors) {
  if (!torch::GradMode::is_enabled()) return false;
  for (const torch::Tensor& x : tensors)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

// True if angles need gradients, which the kernels do not have.
bool angles_are_learned(const AttentionOptions& o) {
  return any_needs_gradient({o.cos, o.sin, o.key_cos, o.key_sin});
}

torch::Tensor rows_contiguous(const torch::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

}  // namespace

torch::Tensor attention(const torch::Tensor& q_in, const torch::Tensor& k_in, const torch::Tensor& v_in,
                        const AttentionOptions& options) {
  check_shapes(q_in, k_in, v_in, options);
  const torch::Tensor q = cast(q_in), k = cast(k_in), v = cast(v_in);
  if (!attention_fuses(q, k, v) || angles_are_learned(options)) return on_gpu_or_composed(q, k, v, options);
  const Parts p{rows_contiguous(q), rows_contiguous(k), rows_contiguous(v)};
  const auto request = request_of(p, options);
  if (!any_needs_gradient({q, k, v, options.bias})) return run_forward(p, *request, nullptr);
  return FusedAttention::apply(p.q, given(p.k), given(p.v), given(options.bias), request);
}

torch::Tensor attention_packed(const torch::Tensor& qkv_in, const AttentionOptions& options) {
  check(qkv_in.dim() == 5 && qkv_in.size(2) == 3, "attention: q, k and v in one tensor ", qkv_in.sizes(),
        " must be [batch, tokens, 3, heads, d]");
  const torch::Tensor qkv = cast(qkv_in);
  torch::Tensor out = options.cos.defined() ? torch::Tensor() : attention_on_gpu(qkv, {}, {}, options);
  if (out.defined()) return out.transpose(1, 2).flatten(2);
  if (attention_fuses(qkv, qkv, qkv) && !angles_are_learned(options)) {
    const torch::Tensor packed = qkv.contiguous();
    const Parts p = parts_of(packed, {}, {});
    check_shapes(p.q, p.k, p.v, options);
    const auto request = request_of(p, options);
    if (any_needs_gradient({qkv, options.bias}))
      out = FusedAttention::apply(packed, given({}), given({}), given(options.bias), request);
    else
      out = run_forward(p, *request, nullptr);
  } else {
    const Parts p = any_needs_gradient({qkv}) ? unbound(qkv) : parts_of(qkv, {}, {});
    check_shapes(p.q, p.k, p.v, options);
    out = on_gpu_or_composed(p.q, p.k, p.v, options);
  }
  return out.transpose(1, 2).flatten(2);
}

}  // namespace tessera::ops
