#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/error.h"
#include "ops/attention.h"
#include "ops/gpu.h"

namespace tessera::ops {
namespace {

using kernels::gpu::AttentionBackward;
using kernels::gpu::AttentionForward;
using kernels::gpu::HeadsOf;

// q, k and v [batch, heads, tokens, d], or views of their places in q [batch, tokens, 3, heads, d] if k is undefined.
struct HeadTensors {
  HeadTensors(const torch::Tensor& q_in, const torch::Tensor& k_in, const torch::Tensor& v_in)
      : q(q_in), k(k_in), v(v_in) {
    if (k.defined()) return;
    const auto part = [&](int64_t i) { return q_in.select(2, i).transpose(1, 2); };
    q = part(0), k = part(1), v = part(2);
  }
  torch::Tensor q, k, v;
};

HeadsOf<const uint16_t*> heads_in(const torch::Tensor& x) {
  return {reinterpret_cast<const uint16_t*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
HeadsOf<uint16_t*> heads_out(const torch::Tensor& x) {
  return {reinterpret_cast<uint16_t*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}
// Allocates [batch, heads, tokens, d] with the memory order [batch, tokens, heads, d].
torch::Tensor token_major(const torch::Tensor& like) {
  return torch::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options())
      .transpose(1, 2);
}

AttentionForward call_of(const HeadTensors& x, const AttentionOptions& options) {
  AttentionForward call;
  call.batch = x.q.size(0), call.heads = x.q.size(1), call.queries = x.q.size(2), call.keys = x.k.size(2);
  call.dim = x.q.size(3), call.scale = 1 / std::sqrt(static_cast<float>(call.dim));
  call.causal = options.causal, call.first_query = options.first_query;
  call.future_weight = static_cast<float>(options.future_weight);
  call.q = heads_in(x.q), call.k = heads_in(x.k), call.v = heads_in(x.v);
  return call;
}

const kernels::gpu::Form<AttentionForward>* forward_form(const GpuPlace& place, AttentionForward call) {
  call.out = {nullptr, call.queries * call.heads * call.dim, call.dim, call.heads * call.dim};
  return kernels::gpu::choose_form(kernels::gpu::table()->attention, place.capability, call);
}
const kernels::gpu::Form<AttentionBackward>* backward_form(const GpuPlace& place,
                                                           const AttentionBackward& call) {
  return kernels::gpu::choose_form(kernels::gpu::table()->attention_backward, place.capability, call);
}
// True if the gradients have a kernel; their tensors are laid out as those of the forward pass.
bool has_gradients(const GpuPlace& place, AttentionForward call) {
  float sums = 0;
  call.lse = &sums;
  return backward_form(place, {call, {}, {}, {}, {}}) != nullptr;
}

torch::Tensor run_attention(const GpuPlace& place, const HeadTensors& x, AttentionForward& call,
                            torch::Tensor* lse) {
  const torch::Tensor out = token_major(x.q);
  call.out = heads_out(out);
  if (lse) {
    *lse = torch::empty(x.q.sizes().slice(0, 3), x.q.options().dtype(torch::kFloat32));
    call.lse = lse->mutable_data_ptr<float>();
  }
  const auto* form = forward_form(place, call);
  check(form != nullptr, "attention: no kernel for heads of ", call.dim, " channels on this GPU");
  run_on_gpu("attention", place, *form, call);
  return out;
}

struct GpuAttentionNode : torch::autograd::Function<GpuAttentionNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& q,
                               const std::optional<torch::Tensor>& k, const std::optional<torch::Tensor>& v,
                               const GpuPlace& place, const AttentionOptions& options) {
    const HeadTensors x(q, k.value_or(torch::Tensor()), v.value_or(torch::Tensor()));
    AttentionForward call = call_of(x, options);
    torch::Tensor lse;
    const torch::Tensor out = run_attention(place, x, call, &lse);
    ctx->save_for_backward({q, k.value_or(torch::Tensor()), v.value_or(torch::Tensor()), out, lse});
    ctx->saved_data["causal"] = options.causal;
    ctx->saved_data["first_query"] = options.first_query;
    ctx->saved_data["future_weight"] = options.future_weight;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("attention");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    const HeadTensors x(q, k, v);
    AttentionOptions options;
    options.causal = ctx->saved_data["causal"].toBool();
    options.first_query = ctx->saved_data["first_query"].toInt();
    options.future_weight = ctx->saved_data["future_weight"].toDouble();
    AttentionForward of = call_of(x, options);
    of.out = heads_out(out), of.lse = const_cast<float*>(saved[4].const_data_ptr<float>());
    torch::Tensor dout = gradients[0].to(out.scalar_type());
    if (dout.stride(3) != 1 || !kernels::gpu::vectors(heads_in(dout)))
      dout = dout.clone(at::MemoryFormat::Contiguous);
    const torch::Tensor dq = k.defined() ? token_major(q) : torch::empty(q.sizes(), q.options());
    const torch::Tensor dk = k.defined() ? token_major(k) : torch::Tensor();
    const torch::Tensor dv = k.defined() ? token_major(v) : torch::Tensor();
    const HeadTensors d(dq, dk, dv);
    const AttentionBackward call = {of, heads_in(dout), heads_out(d.q), heads_out(d.k), heads_out(d.v)};
    const GpuPlace place = *gpu_place(out);
    const auto* form = backward_form(place, call);
    check(form != nullptr, "attention: no kernel for the gradients of heads of ", of.dim,
          " channels on this GPU");
    run_on_gpu("attention backward", place, *form, call);
    return {dq, dk, dv, {}, {}};
  }
};

}  // namespace

torch::Tensor attention_on_gpu(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const AttentionOptions& options) {
  const auto place = gpu_place(q);
  if (!place || q.scalar_type() != torch::kBFloat16 || options.bias.defined() || options.window > 0)
    return {};
  const HeadTensors x(q, k, v);
  if (x.k.scalar_type() != torch::kBFloat16 || x.v.scalar_type() != torch::kBFloat16 || x.q.stride(3) != 1 ||
      x.k.stride(3) != 1 || x.v.stride(3) != 1)
    return {};
  AttentionForward call = call_of(x, options);
  const bool gradients =
      torch::GradMode::is_enabled() && (x.q.requires_grad() || x.k.requires_grad() || x.v.requires_grad());
  if (!forward_form(*place, call) || (gradients && !has_gradients(*place, call))) return {};
  if (!gradients) return run_attention(*place, x, call, nullptr);
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return GpuAttentionNode::apply(q, given(k), given(v), *place, options);
}

}  // namespace tessera::ops
