#include "ops/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "ops/gpu.h"
#include "ops/samples.h"

namespace tessera::ops {
namespace {

float* floats_or_null(const torch::Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

kernels::gpu::NormForward forward_call(const torch::Tensor& x, const torch::Tensor& weight,
                                       const torch::Tensor& bias, double eps, bool centred) {
  const RowsOfTensor rows = rows_of(x);
  return {rows.count,
          x.size(-1),
          rows.rows,
          float_pointer(weight),
          float_pointer(bias),
          static_cast<float>(eps),
          centred,
          {},
          sample_rows(weight, x)};
}
kernels::gpu::NormBackward backward_call(const torch::Tensor& x, const torch::Tensor& weight, double eps,
                                         bool centred) {
  const kernels::gpu::NormForward forward = forward_call(x, weight, {}, eps, centred);
  kernels::gpu::NormBackward call;
  call.rows = forward.rows, call.width = forward.width, call.x = forward.x, call.weight = forward.weight;
  call.eps = forward.eps, call.centred = centred, call.sample_rows = forward.sample_rows;
  return call;
}

torch::Tensor run(const GpuPlace& place, const kernels::gpu::Form<kernels::gpu::NormForward>& form,
                  const torch::Tensor& x, kernels::gpu::NormForward call) {
  const torch::Tensor y = torch::empty(x.sizes(), x.options().dtype(place.output));
  call.y = rows_to(y);
  run_on_gpu("norm", place, form, call);
  return y;
}

struct GpuNormNode : torch::autograd::Function<GpuNormNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const std::optional<torch::Tensor>& bias,
                               double eps, bool centred, const GpuPlace& place,
                               const kernels::gpu::Form<kernels::gpu::NormForward>& form) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["centred"] = centred;
    ctx->saved_data["bias"] = bias.has_value();
    return run(place, form, x, forward_call(x, weight, bias.value_or(torch::Tensor()), eps, centred));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("norm");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], dy = aligned(gradients[0]);
    const GpuPlace place = *gpu_place(x);
    kernels::gpu::NormBackward call =
        backward_call(x, weight, ctx->saved_data["eps"].toDouble(), ctx->saved_data["centred"].toBool());
    const torch::Tensor dx = torch::empty(x.sizes(), x.options());
    call.dy = rows_of(dy).rows, call.dx = rows_to(dx);
    const int64_t samples = call.sample_rows > 0 ? call.rows / call.sample_rows : 1;
    torch::Tensor dweight, dbias, partial;
    if (ctx->needs_input_grad(1)) dweight = torch::empty_like(weight);
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) dbias = torch::empty_like(weight);
    if (dweight.defined() || dbias.defined())
      partial = torch::empty({samples * kernels::gpu::row_parts(call.rows / samples), 2, call.width},
                             weight.options());
    call.dweight = floats_or_null(dweight), call.dbias = floats_or_null(dbias),
    call.partial = floats_or_null(partial);
    const auto* form =
        kernels::gpu::choose_form(kernels::gpu::table()->norm_backward, place.capability, call);
    check(form != nullptr, "norm: no kernel for the gradient of rows of ", call.width,
          " numbers on this GPU");
    run_on_gpu("norm backward", place, *form, call);
    return {dx, dweight, dbias, {}, {}, {}, {}};
  }
};

bool in_floats(const torch::Tensor& t) {
  return !t.defined() || (t.scalar_type() == torch::kFloat32 && t.is_contiguous());
}

}  // namespace

torch::Tensor norm_on_gpu(const torch::Tensor& x_in, const NormParameters& p) {
  const auto place = gpu_place(x_in);
  if (!place) return {};
  const torch::Tensor x = rows_of(x_in).tensor;  // contiguous, or a matrix with a stride
  const bool recorded = torch::GradMode::is_enabled() && (x.requires_grad() || p.weight.requires_grad() ||
                                                          (p.bias.defined() && p.bias.requires_grad()));
  // A modulation's are small, and parts of a wider tensor.
  const auto given = [&](const torch::Tensor& t) {
    return of_each_sample(t) ? t.to(torch::kFloat32).contiguous() : t;
  };
  const torch::Tensor weight = given(p.weight), bias = p.bias.defined() ? given(p.bias) : p.bias;
  if (!in_floats(weight) || !in_floats(bias)) return {};
  const kernels::gpu::NormForward call = forward_call(x, weight, bias, p.eps, p.centred);
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->norm, place->capability, call);
  if (!form) return {};
  if (!recorded) return run(*place, *form, x, call);
  const auto backward = backward_call(x, weight, p.eps, p.centred);
  if (!kernels::gpu::choose_form(kernels::gpu::table()->norm_backward, place->capability, backward))
    return {};
  return GpuNormNode::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, p.eps, p.centred,
                            *place, *form);
}

}  // namespace tessera::ops
