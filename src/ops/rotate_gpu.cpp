#include <torch/csrc/autograd/custom_function.h>

#include "ops/attention.h"
#include "ops/gpu.h"

namespace tessera::ops {
namespace {

using RotateForm = kernels::gpu::Form<kernels::gpu::Rotation>;

// True if a table has x's tokens, and its heads and samples or one for all.
bool fits_table(const torch::Tensor& table, const torch::Tensor& x) {
  bool fits = table.dim() >= 2 && table.dim() <= 4 && table.size(-2) == x.size(2);
  for (int64_t axis = 3; fits && axis <= table.dim(); ++axis)
    fits = table.size(-axis) == 1 || table.size(-axis) == x.size(-axis);
  return fits;
}

// Returns the stride of an axis of a table, counted from its end; 0 if it is missing or the same for all.
int64_t table_stride(const torch::Tensor& table, int64_t axis) {
  return table.dim() < axis || table.size(-axis) == 1 ? 0 : table.stride(-axis);
}

kernels::gpu::Rotation rotation_of(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin,
                                   bool inverse) {
  kernels::gpu::Rotation call;
  call.batch = x.size(0), call.heads = x.size(1), call.tokens = x.size(2), call.channels = x.size(3);
  call.rotated = 2 * cos.size(-1), call.inverse = inverse, call.element = element_of(x);
  call.x = x.const_data_ptr(), call.sample = x.stride(0), call.head = x.stride(1), call.token = x.stride(2);
  call.cos = float_pointer(cos), call.sin = float_pointer(sin);
  call.table_sample = table_stride(cos, 4), call.table_head = table_stride(cos, 3);
  return call;
}

torch::Tensor run(const GpuPlace& place, const RotateForm& form, const torch::Tensor& x,
                  kernels::gpu::Rotation call) {
  const torch::Tensor y = torch::empty(x.sizes(), x.options());
  call.y = y.mutable_data_ptr();
  run_on_gpu("rotate", place, form, call);
  return y;
}

struct RotateNode : torch::autograd::Function<RotateNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& cos, const torch::Tensor& sin, const GpuPlace& place,
                               const RotateForm& form) {
    ctx->save_for_backward({cos, sin});
    return run(place, form, x, rotation_of(x, cos, sin, /*inverse=*/false));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("rotate");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor dy = aligned(gradients[0].contiguous());
    const GpuPlace place = *gpu_place(dy);
    const kernels::gpu::Rotation call = rotation_of(dy, saved[0], saved[1], /*inverse=*/true);
    const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->rotate, place.capability, call);
    check(form != nullptr, "rotate: no kernel for the gradient of ", call.channels, " channels on this GPU");
    return {run(place, *form, dy, call), {}, {}, {}, {}};
  }
};

}  // namespace

torch::Tensor rotate_on_gpu(const torch::Tensor& x, const torch::Tensor& cos_in,
                            const torch::Tensor& sin_in) {
  const bool gradients = torch::GradMode::is_enabled();
  const auto place = gpu_place(x);
  if (!place || x.dim() != 4 || x.stride(3) != 1 ||
      (gradients && (cos_in.requires_grad() || sin_in.requires_grad())) ||
      cos_in.scalar_type() != torch::kFloat32 || cos_in.sizes() != sin_in.sizes() || !fits_table(cos_in, x))
    return {};
  const torch::Tensor cos = cos_in.contiguous(), sin = sin_in.contiguous();
  const kernels::gpu::Rotation call = rotation_of(x, cos, sin, /*inverse=*/false);
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->rotate, place->capability, call);
  if (!form) return {};
  return gradients && x.requires_grad() ? RotateNode::apply(x, cos, sin, *place, *form)
                                        : run(*place, *form, x, call);
}

}  // namespace tessera::ops
