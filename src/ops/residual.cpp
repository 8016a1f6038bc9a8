#include <torch/csrc/autograd/custom_function.h>

#include "ops/gpu.h"
#include "ops/linear.h"
#include "ops/samples.h"

namespace tessera::ops {
namespace {

kernels::gpu::ResidualForward forward_call(const torch::Tensor& residual, const torch::Tensor& x,
                                           const torch::Tensor& scale) {
  const RowsOfTensor rows = rows_of(x);
  return {
      rows.count, x.size(-1), rows.rows, rows_of(residual).rows, float_pointer(scale), sample_rows(scale, x),
      {}};
}
kernels::gpu::ResidualBackward backward_call(const torch::Tensor& x, const torch::Tensor& scale) {
  const RowsOfTensor rows = rows_of(x);
  return {rows.count, x.size(-1), rows.rows, {}, float_pointer(scale), sample_rows(scale, x),
          {},         nullptr,    nullptr};
}

using ResidualForm = kernels::gpu::Form<kernels::gpu::ResidualForward>;

torch::Tensor run(const GpuPlace& place, const ResidualForm& form, const torch::Tensor& residual,
                  const torch::Tensor& x, const torch::Tensor& scale) {
  const torch::Tensor y = torch::empty(residual.sizes(), residual.options());
  kernels::gpu::ResidualForward call = forward_call(residual, x, scale);
  call.y = rows_to(y);
  run_on_gpu("residual", place, form, call);
  return y;
}

struct ResidualNode : torch::autograd::Function<ResidualNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& residual,
                               const torch::Tensor& x, const torch::Tensor& scale, const GpuPlace& place,
                               const ResidualForm& form) {
    ctx->save_for_backward({x, scale});
    return run(place, form, residual, x, scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("residual");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &scale = saved[1], dy = aligned(gradients[0]);
    const GpuPlace place = *gpu_place(x);
    kernels::gpu::ResidualBackward call = backward_call(x, scale);
    const torch::Tensor dx = torch::empty(x.sizes(), x.options());
    call.dy = rows_of(dy).rows, call.dx = rows_to(dx);
    torch::Tensor dscale, partial;
    if (ctx->needs_input_grad(2)) {
      const int64_t samples = call.sample_rows > 0 ? call.rows / call.sample_rows : 1;
      dscale = torch::empty(scale.sizes(), scale.options());
      partial =
          torch::empty({samples, kernels::gpu::row_parts(call.rows / samples), call.width}, scale.options());
      call.dscale = dscale.mutable_data_ptr<float>(), call.partial = partial.mutable_data_ptr<float>();
    }
    const auto* form =
        kernels::gpu::choose_form(kernels::gpu::table()->residual_backward, place.capability, call);
    check(form != nullptr, "residual: no kernel for the gradient of rows of ", call.width,
          " numbers on this GPU");
    run_on_gpu("residual backward", place, *form, call);
    return {gradients[0], dx, dscale, {}, {}};
  }
};

bool in_kernel_type(const torch::Tensor& t) {
  return t.scalar_type() == torch::kFloat32 || t.scalar_type() == torch::kBFloat16;
}

// Returns the result of a kernel; undefined if none takes it.
torch::Tensor on_gpu(const torch::Tensor& residual_in, const torch::Tensor& x_in,
                     const torch::Tensor& scale_in) {
  const auto place = gpu_place(x_in);
  if (!place || x_in.dim() == 0 || residual_in.sizes() != x_in.sizes() || !in_kernel_type(residual_in))
    return {};
  const torch::Tensor x = rows_of(x_in).tensor, residual = rows_of(residual_in).tensor,
                      scale = scale_in.to(torch::kFloat32).contiguous();
  const kernels::gpu::ResidualForward call = forward_call(residual, x, scale);
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->residual, place->capability, call);
  if (!form || !kernels::gpu::choose_form(kernels::gpu::table()->residual_backward, place->capability,
                                          backward_call(x, scale)))
    return {};
  const bool recorded = torch::GradMode::is_enabled() &&
                        (x.requires_grad() || residual.requires_grad() || scale.requires_grad());
  return recorded ? ResidualNode::apply(residual, x, scale, *place, *form)
                  : run(*place, *form, residual, x, scale);
}

}  // namespace

torch::Tensor add_scaled(const torch::Tensor& residual, const torch::Tensor& x, const torch::Tensor& scale) {
  if (!scale.defined()) return residual.defined() ? (residual + x).to(residual.scalar_type()) : x;
  if (!residual.defined()) return x * beside(scale, x);
  if (const torch::Tensor y = on_gpu(residual, x, scale); y.defined()) return y;
  return (residual + x * beside(scale, x)).to(residual.scalar_type());
}

}  // namespace tessera::ops
