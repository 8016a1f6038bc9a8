#include "ops/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "core/error.h"
#include "kernels/linear/linear_backward.h"
#include "ops/inference.h"
#include "ops/samples.h"

namespace tessera::ops {
namespace {

torch::Tensor run(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps,
                  bool centred, kernels::Arithmetic arithmetic) {
  const torch::Tensor y = torch::empty(x.sizes(), x.options().dtype(output_type(arithmetic)));
  const torch::Tensor scale = floats(weight), shift = floats(bias);
  const RowsOfTensor rows = rows_of(x);
  const Profiled profiled("norm");
  kernels::norm_forward(
      {rows.count,
       x.size(-1),
       rows.rows,
       {float_pointer(scale), float_pointer(shift), static_cast<float>(eps), centred, sample_rows(weight, x)},
       rows_to(y)});
  return y;
}

struct NormNode : torch::autograd::Function<NormNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const std::optional<torch::Tensor>& bias,
                               double eps, bool centred, kernels::Arithmetic arithmetic) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["centred"] = centred;
    ctx->saved_data["bias"] = bias.has_value();
    return run(x, weight, bias.value_or(torch::Tensor()), eps, centred, arithmetic);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    check_first_derivative("norm");
    const auto wanted = [&](bool is) { return is ? torch::empty_like(weight) : torch::Tensor(); };
    const auto to = [](const torch::Tensor& sum) {
      return sum.defined() ? sum.mutable_data_ptr<float>() : nullptr;
    };
    const torch::Tensor dx = torch::empty(x.sizes(), x.options()), dweight = wanted(ctx->needs_input_grad(1)),
                        dbias = wanted(ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2));
    const RowsOfTensor rows = rows_of(x), outputs = rows_of(gradients[0]);
    const Profiled profiled("norm backward");
    kernels::norm_backward({rows.count, x.size(-1), ctx->saved_data["centred"].toBool(),
                            static_cast<float>(ctx->saved_data["eps"].toDouble()), rows.rows, outputs.rows,
                            float_pointer(weight), rows_to(dx), to(dweight), to(dbias),
                            sample_rows(weight, x)});
    return {dx, dweight, dbias, {}, {}, {}};
  }
};

// The norm by kernels, with gradients if needed now or later; undefined if the kernels do not support the
// case.
torch::Tensor fused(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                    double eps, bool centred) {
  if (const auto arithmetic = fused_arithmetic(x)) return run(x, weight, bias, eps, centred, *arithmetic);
  const auto arithmetic = product_arithmetic(x);
  const bool in_floats =
      weight.scalar_type() == torch::kFloat32 && (!bias.defined() || bias.scalar_type() == torch::kFloat32);
  if (!arithmetic || !in_floats) return {};
  return NormNode::apply(x, weight.contiguous(), bias.defined() ? std::optional(bias) : std::nullopt, eps,
                         centred, *arithmetic);
}

}  // namespace

void check_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  const int64_t width = x.dim() > 0 ? x.size(-1) : 0;
  check(width > 0 && fits_rows(weight, x, width) && (!bias.defined() || bias.sizes() == weight.sizes()),
        "norm: x is ", x.sizes(), ", so weight and bias must have ", width,
        " numbers, or that many per sample; the weight is ", weight.sizes());
}

torch::Tensor norm(const torch::Tensor& x, const NormParameters& p) {
  check_norm(x, p.weight, p.bias);
  torch::Tensor y = norm_on_gpu(x, p);
  if (!y.defined()) y = fused(x, p.weight, p.bias, p.eps, p.centred);
  if (y.defined()) return y;
  if (p.centred && !of_each_sample(p.weight))
    return torch::layer_norm(x, {x.size(-1)}, p.weight, p.bias, p.eps);
  const torch::Tensor normed = p.centred ? torch::layer_norm(x, {x.size(-1)}, {}, {}, p.eps)
                                         : x * torch::rsqrt(x.square().mean(-1, /*keepdim=*/true) + p.eps);
  const torch::Tensor scaled = normed * beside(p.weight, x);
  return p.bias.defined() ? scaled + beside(p.bias, x) : scaled;
}

}  // namespace tessera::ops
