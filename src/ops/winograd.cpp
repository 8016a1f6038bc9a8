#include "ops/winograd.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "kernels/isa.h"
#include "kernels/winograd/winograd.h"
#include "ops/inference.h"

namespace tessera::ops {
namespace {

kernels::WinogradGrid grid_of(const torch::Tensor& x, int64_t out) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), out};
}

// Gradients of weight and input; the bias' gradient is a sum.
struct WinogradNode : torch::autograd::Function<WinogradNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const std::optional<torch::Tensor>& bias,
                               torch::ScalarType type) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    const torch::Tensor shift = floats(bias.value_or(torch::Tensor()));
    return winograd(x, winograd_weights(weight), shift, weight.size(0), type);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("convolution");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    const torch::Tensor dy = gradients[0].contiguous();
    torch::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0))
      dx = winograd(dy, winograd_weights(weight, /*rotated=*/true), {}, weight.size(1), x.scalar_type());
    if (ctx->needs_input_grad(1)) dweight = gradient_of_weight(x.contiguous(), dy, weight);
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2))
      dbias = dy.sum({0, 1, 2}, false, torch::kFloat32);
    return {dx, dweight, dbias, {}};
  }

 private:
  static torch::Tensor gradient_of_weight(const torch::Tensor& x, const torch::Tensor& dy,
                                          const torch::Tensor& weight) {
    const torch::Tensor gradient = torch::empty(weight.sizes(), torch::kFloat32);
    const Profiled profiled("convolution gradients");
    kernels::winograd_gradients({grid_of(x, dy.size(3)), x.const_data_ptr(), element_of(x),
                                 dy.const_data_ptr(), element_of(dy), gradient.mutable_data_ptr<float>()});
    return gradient;
  }
};

}  // namespace

bool winograd_applies(const torch::Tensor& x, const ConvolutionParameters& p, torch::ScalarType type,
                      bool training) {
  if (p.groups != 1 || p.weight.size(2) != 3 || p.weight.size(3) != 3 || p.stride != 1 || p.padding != 1 ||
      p.dilation != 1 || kernels::active_isa() < kernels::Isa::avx2)
    return false;
  const bool bf16 = type == torch::kBFloat16;
  if (bf16 && kernels::active_isa() >= kernels::Isa::amx) return false;
  const int64_t rows = x.size(1), columns = x.size(2), least = std::min(p.weight.size(0), p.weight.size(1));
  const int64_t least_cells = training ? 192 : 64;
  if (rows * columns < least_cells || least < (bf16 ? 128 : 64)) return false;
  const auto whole = [](int64_t cells) { return (cells + 3) / 4 * 4; };
  const auto computed = static_cast<double>(whole(rows) * whole(columns)),
             wanted = static_cast<double>(rows * columns);
  return computed <= (bf16 ? 1.2 : 1.6) * wanted;
}

torch::Tensor winograd_weights(const torch::Tensor& given, bool rotated) {
  const torch::Tensor weight = floats(given);
  const int64_t out = weight.size(0), in = weight.size(1);
  const Profiled profiled("convolution packing");
  const torch::Tensor packed = torch::empty(
      {rotated ? kernels::winograd_packed_count(out, in) : kernels::winograd_packed_count(in, out)},
      torch::kFloat32);
  const auto* from = weight.const_data_ptr<float>();
  auto* to = packed.mutable_data_ptr<float>();
  if (rotated)
    kernels::winograd_pack({from, out, in, 9, 9 * in, true, to});
  else
    kernels::winograd_pack({from, in, out, 9 * in, 9, false, to});
  return packed;
}

torch::Tensor winograd(const torch::Tensor& given, const torch::Tensor& transformed,
                       const torch::Tensor& bias, int64_t out, torch::ScalarType type,
                       const torch::Tensor& residual, bool relu) {
  const torch::Tensor x = given.contiguous();
  const torch::Tensor y = torch::empty({x.size(0), x.size(1), x.size(2), out}, x.options().dtype(type));
  check(!residual.defined() || residual.sizes() == y.sizes(), "convolution: the residual is ",
        residual.sizes(), ", must be ", y.sizes());
  const torch::Tensor added = residual.defined() ? residual.to(type).contiguous() : torch::Tensor();
  const Profiled profiled("convolution ", x.size(0) * x.size(1) * x.size(2), " x ", 9 * x.size(3), " -> ",
                          out);
  kernels::winograd_forward({.grid = grid_of(x, out),
                             .x = x.const_data_ptr(),
                             .x_element = element_of(x),
                             .packed = transformed.const_data_ptr<float>(),
                             .bias = float_pointer(bias),
                             .residual = added.defined() ? added.const_data_ptr() : nullptr,
                             .residual_element = added.defined() ? element_of(added) : kernels::Element::f32,
                             .relu = relu,
                             .y = y.mutable_data_ptr(),
                             .y_element = element_of(y)});
  return y;
}

torch::Tensor winograd_with_gradients(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias, torch::ScalarType type) {
  return WinogradNode::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, type);
}

}  // namespace tessera::ops
