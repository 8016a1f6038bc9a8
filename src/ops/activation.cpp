#include "ops/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "ops/gpu.h"

namespace tessera::ops {
namespace {

using Optional = std::optional<torch::Tensor>;

kernels::gpu::ActivationForward activation_call(ActivationKind kind, const torch::Tensor& x,
                                                const torch::Tensor& gate) {
  kernels::gpu::ActivationForward call{kind, x.numel() / x.size(-1), x.size(-1), rows_of(x).rows, {}, {}};
  if (gate.defined()) call.gate = rows_of(gate).rows;
  return call;
}

torch::Tensor run_activation(const GpuPlace& place,
                             const kernels::gpu::Form<kernels::gpu::ActivationForward>& form,
                             const torch::Tensor& x, kernels::gpu::ActivationForward call) {
  const torch::Tensor y = torch::empty(x.sizes(), x.options());
  call.y = rows_to(y);
  run_on_gpu("activation", place, form, call);
  return y;
}

struct ActivationNode : torch::autograd::Function<ActivationNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const Optional& gate, ActivationKind kind, const GpuPlace& place,
                               const kernels::gpu::Form<kernels::gpu::ActivationForward>& form) {
    ctx->save_for_backward({x, gate.value_or(torch::Tensor())});
    ctx->saved_data["kind"] = static_cast<int64_t>(kind);
    return run_activation(place, form, x, activation_call(kind, x, gate.value_or(torch::Tensor())));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("activation");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &gate = saved[1], dy = aligned(gradients[0]);
    const auto kind = static_cast<ActivationKind>(ctx->saved_data["kind"].toInt());
    const kernels::gpu::ActivationForward forward = activation_call(kind, x, gate);
    const torch::Tensor dx = torch::empty(x.sizes(), x.options());
    torch::Tensor dgate;
    kernels::gpu::ActivationBackward call{kind,         forward.rows,     forward.width, forward.x,
                                          forward.gate, rows_of(dy).rows, rows_to(dx),   {}};
    if (gate.defined()) dgate = torch::empty(gate.sizes(), gate.options()), call.dgate = rows_to(dgate);
    const GpuPlace place = *gpu_place(x);
    const auto* form =
        kernels::gpu::choose_form(kernels::gpu::table()->activation_backward, place.capability, call);
    check(form != nullptr, "activation: no kernel for the gradient of rows of ", call.width,
          " numbers on this GPU");
    run_on_gpu("activation backward", place, *form, call);
    return {dx, dgate, {}, {}, {}};
  }
};

torch::Tensor composed(ActivationKind kind, const torch::Tensor& x, const torch::Tensor& gate) {
  const torch::Tensor y = kind == ActivationKind::gelu        ? torch::gelu(x)
                          : kind == ActivationKind::gelu_tanh ? torch::gelu(x, "tanh")
                                                              : torch::silu(x);
  return gate.defined() ? y * gate : y;
}

// Returns the result of a kernel; undefined if none takes it.
torch::Tensor on_gpu(ActivationKind kind, const torch::Tensor& x_in, const torch::Tensor& gate_in) {
  const auto place = gpu_place(x_in);
  if (!place || x_in.dim() == 0) return {};
  if (gate_in.defined() && (gate_in.sizes() != x_in.sizes() || gate_in.scalar_type() != x_in.scalar_type()))
    return {};
  const torch::Tensor x = rows_of(x_in).tensor, gate = gate_in.defined() ? rows_of(gate_in).tensor : gate_in;
  const kernels::gpu::ActivationForward call = activation_call(kind, x, gate);
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->activation, place->capability, call);
  const kernels::gpu::ActivationBackward backward{kind, call.rows, call.width, call.x, call.gate, {}, {}, {}};
  if (!form ||
      !kernels::gpu::choose_form(kernels::gpu::table()->activation_backward, place->capability, backward))
    return {};
  const bool recorded =
      torch::GradMode::is_enabled() && (x.requires_grad() || (gate.defined() && gate.requires_grad()));
  if (!recorded) return run_activation(*place, *form, x, call);
  return ActivationNode::apply(x, gate.defined() ? Optional(gate) : std::nullopt, kind, *place, *form);
}

}  // namespace

torch::Tensor activation(ActivationKind kind, const torch::Tensor& x, const torch::Tensor& gate) {
  const torch::Tensor y = on_gpu(kind, x, gate);
  return y.defined() ? y : composed(kind, x, gate);
}

}  // namespace tessera::ops
