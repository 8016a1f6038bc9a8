// Linear layers on a GPU by cuBLASLt (kernels/gpu/products.h): bias, GELU by tanh, LayerScale and the residual sum in the product,
// the gradient of the bias in that of the weights, and GELU's slope in the gradient of its result.
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "kernels/gpu/products.h"
#include "ops/gpu.h"
#include "ops/linear.h"
#include "ops/samples.h"

namespace tessera::ops {
namespace {

using Optional = std::optional<torch::Tensor>;

// A bfloat16 matrix, or its transpose, as a factor.
struct Factor {
  torch::Tensor matrix;
  bool transposed = false;

  int64_t rows() const { return matrix.size(transposed ? 1 : 0); }
  int64_t columns() const { return matrix.size(transposed ? 0 : 1); }
  torch::Tensor view() const { return transposed ? matrix.t() : matrix; }
  kernels::gpu::ProductFactor described() const {
    return {matrix.const_data_ptr(), matrix.stride(0), transposed};
  }
};

// The steps in the product's pass over its result; bias, added and sums have its type, or are undefined.
struct Steps {
  torch::Tensor bias = {}, added = {};  // [columns], [rows, columns]
  bool gelu_tanh = false;
  torch::Tensor sums = {};  // output [rows]: sums of a
  torch::Tensor before =
      {};  // [rows, columns]: with gelu_tanh output, GELU's input; else the result is times its slope there
};

// Computes a product for which the library has no algorithm.
torch::Tensor composed(const Factor& a, const Factor& b, const Steps& steps) {
  torch::Tensor y = torch::matmul(a.view(), b.view()).to(torch::kFloat32);
  if (steps.bias.defined()) y = y + steps.bias;
  if (steps.added.defined()) y = y + steps.added;
  if (steps.before.defined() && !steps.gelu_tanh)
    return at::gelu_backward(y, steps.before.to(y.dtype()), "tanh");
  if (steps.before.defined()) steps.before.copy_(y);
  return steps.gelu_tanh ? torch::gelu(y, "tanh") : y;
}

torch::Tensor product(const GpuPlace& place, const Factor& a, const Factor& b, torch::ScalarType type,
                      const Steps& steps = {}) {
  constexpr int64_t kBoundary = 256;  // of workspaces
  const torch::Tensor y = torch::empty({a.rows(), b.columns()}, a.matrix.options().dtype(type));
  const torch::Tensor room = torch::empty({static_cast<int64_t>(kernels::gpu::kProductWorkspace) + kBoundary},
                                          a.matrix.options().dtype(torch::kUInt8));
  kernels::gpu::Product call;
  call.rows = a.rows(), call.columns = b.columns(), call.inner = a.columns();
  call.a = a.described(), call.b = b.described(), call.result = rows_to(y);
  if (steps.added.defined()) call.added = rows_of(steps.added).rows;
  if (steps.bias.defined()) call.bias = steps.bias.const_data_ptr();
  call.gelu_tanh = steps.gelu_tanh, call.gelu_gradient = steps.before.defined() && !steps.gelu_tanh;
  if (steps.before.defined()) call.before = steps.before.mutable_data_ptr();
  if (steps.sums.defined()) call.sums_of_a = steps.sums.mutable_data_ptr();
  const auto begin = reinterpret_cast<uintptr_t>(room.mutable_data_ptr());
  call.workspace = static_cast<char*>(room.mutable_data_ptr()) + (kBoundary - begin % kBoundary) % kBoundary;
  const Profiled profiled("linear ", call.rows, " x ", call.inner, " -> ", call.columns, " (cublaslt)");
  const c10::DeviceGuard guard(place.device);
  const auto run = [&] {
    return kernels::gpu::run_product(place.device.index(), call, stream_of(place.device));
  };
  bool done = run();
  if (!done && steps.sums.defined()) {
    steps.sums.copy_(a.view().sum(1, /*keepdim=*/false, torch::kFloat32));
    call.sums_of_a = nullptr;
    done = run();
  }
  if (!done) y.copy_(composed(a, b, steps));
  return y;
}

// Returns x as rows in bfloat16.
torch::Tensor half_rows(const torch::Tensor& x) {
  return aligned(x.detach().to(torch::kBFloat16).reshape({-1, x.size(-1)}));
}

// Returns the weights that a product reads: scaled, in bfloat16.
torch::Tensor half_weight(const torch::Tensor& weight, const torch::Tensor& scale) {
  if (!scale.defined()) {
    const torch::Tensor half = half_of(weight);
    return half_rows(half.defined() ? half : weight);
  }
  return half_rows(weight.detach().to(torch::kFloat32) * scale.detach().unsqueeze(1));
}

// Computes residual + scale (x W^T + b) in rows, or its GELU, from x and the scaled W in bfloat16.
// `before`: gets GELU's input.
torch::Tensor forward_product(const GpuPlace& place, const torch::Tensor& rows, const torch::Tensor& half,
                              const GpuLinear& p, const torch::Tensor& before = {}) {
  const auto type = p.residual.defined() ? p.residual.scalar_type() : torch::kBFloat16;
  Steps steps;
  if (p.bias.defined()) {
    const torch::Tensor bias = p.bias.detach();
    steps.bias = aligned((p.scale.defined() ? bias * p.scale.detach() : bias).to(type));
  }
  if (p.residual.defined()) steps.added = aligned(p.residual.detach().reshape({-1, half.size(0)}));
  steps.gelu_tanh = p.gelu_tanh, steps.before = before;
  return product(place, {rows}, {half, /*transposed=*/true}, type, steps);
}

// Returns rows in the shape of x, with columns of their own.
torch::Tensor shaped_as(const torch::Tensor& x, const torch::Tensor& rows) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = rows.size(1);
  return rows.view(shape);
}

// The gradients of W, b and scale from one product: with D = dy^T x and d = sum dy, dW = scale D, db = scale d, and that of
// scale is sum_k D W + d b.
struct ParameterGradients {
  torch::Tensor weight, bias, scale;
};
ParameterGradients parameter_gradients(const GpuPlace& place, const torch::Tensor& dy, const torch::Tensor& x,
                                       const torch::Tensor& weight, const torch::Tensor& bias,
                                       const torch::Tensor& scale) {
  ParameterGradients d;
  if (bias.defined()) d.bias = torch::empty({dy.size(1)}, dy.options().dtype(torch::kFloat32));
  d.weight = product(place, {dy, /*transposed=*/true}, {x}, torch::kFloat32, {.sums = d.bias});
  if (scale.defined()) {
    d.scale = (d.weight * weight).sum(1);
    d.weight.mul_(scale.unsqueeze(1));
    if (bias.defined()) d.scale.add_(d.bias * bias), d.bias.mul_(scale);
  }
  return d;
}

// Returns {y}, or with GELU {its input, y}: gradients go to the input (GpuLinear::before of the next layer).
struct GpuLinearNode : torch::autograd::Function<GpuLinearNode> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                                                const torch::Tensor& weight, const Optional& bias,
                                                const Optional& scale, const Optional& residual,
                                                const Optional& before, bool gelu, const GpuPlace& place) {
    const GpuLinear p{bias.value_or(torch::Tensor()), scale.value_or(torch::Tensor()),
                      residual.value_or(torch::Tensor()), gelu};
    const torch::Tensor half = half_weight(weight, p.scale);
    const bool trained =
        weight.requires_grad() || (bias && bias->requires_grad()) || (scale && scale->requires_grad());
    const torch::Tensor rows = half_rows(x);
    ctx->save_for_backward({trained ? rows : torch::Tensor(), half, weight, p.bias, p.scale,
                            before && before->requires_grad() ? half_rows(*before) : torch::Tensor()});
    ctx->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    ctx->saved_data["residual"] = residual.has_value();
    if (!gelu) return {shaped_as(x, forward_product(place, rows, half, p))};
    const torch::Tensor input = torch::empty({rows.size(0), half.size(0)}, rows.options());
    const torch::Tensor y = shaped_as(x, forward_product(place, rows, half, p, input));
    ctx->mark_non_differentiable({y});
    ctx->set_materialize_grads(false);  // of y, as large as y
    return {shaped_as(x, input), y};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    check_first_derivative("linear");
    if (!gradients[0].defined()) return torch::autograd::variable_list(8);
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &rows = saved[0], &half = saved[1], &weight = saved[2], &bias = saved[3],
                        &scale = saved[4], &before = saved[5];
    const torch::Tensor dy = half_rows(gradients[0]);
    const GpuPlace place = *gpu_place(dy);
    torch::Tensor dx, dbefore;
    if (before.defined())
      dbefore = shaped_as(gradients[0], product(place, {dy}, {half}, torch::kBFloat16, {.before = before}));
    else if (ctx->needs_input_grad(0))
      dx = shaped_as(gradients[0], product(place, {dy}, {half}, torch::kBFloat16))
               .to(static_cast<torch::ScalarType>(ctx->saved_data["type"].toInt()));
    ParameterGradients d;
    if (rows.defined()) d = parameter_gradients(place, dy, rows, weight, bias, scale);
    const auto as = [](const torch::Tensor& gradient, const torch::Tensor& like) {
      return gradient.defined() && like.defined() ? gradient.to(like.scalar_type()) : torch::Tensor();
    };
    const torch::Tensor dresidual = ctx->saved_data["residual"].toBool() ? gradients[0] : torch::Tensor();
    return {dx, as(d.weight, weight), as(d.bias, bias), as(d.scale, scale), dresidual, dbefore, {}, {}};
  }
};

// Runs the node, with GELU or without.
torch::autograd::variable_list recorded(const GpuPlace& place, const torch::Tensor& x,
                                        const torch::Tensor& weight, const GpuLinear& p) {
  const auto given = [](const torch::Tensor& t) { return t.defined() ? Optional(t) : std::nullopt; };
  return GpuLinearNode::apply(x, weight, given(p.bias), given(p.scale), given(p.residual), given(p.before),
                              p.gelu_tanh, place);
}

bool in_product_type(const torch::Tensor& t) {
  return !t.defined() || t.scalar_type() == torch::kFloat32 || t.scalar_type() == torch::kBFloat16;
}

// True if products take the layer for an input of `width` numbers a row.
bool products_take(const LinearParameters& p, int64_t width) {
  constexpr int64_t kOfBoundary = 8;  // numbers in 16 bytes
  if (p.weight.dim() != 2 || width != p.weight.size(1) || width % kOfBoundary != 0 ||
      p.weight.size(0) % kOfBoundary != 0 || p.weight_log_step.defined() || p.input_log_step.defined())
    return false;
  const auto all = {&p.weight, &p.gate, &p.bias, &p.scale};
  return std::all_of(all.begin(), all.end(), [](const torch::Tensor* t) { return in_product_type(*t); });
}

}  // namespace

std::optional<GpuPlace> product_place(const torch::Tensor& x, const LinearParameters& p,
                                      const torch::Tensor& residual) {
  if (!kernels::gpu::products_in_use() || x.dim() == 0 || inference_settings().int8) return {};
  const auto place = gpu_place(x);
  if (!place || place->output != torch::kBFloat16 || !products_take(p, x.size(-1)) ||
      !in_product_type(residual) ||
      (residual.defined() && residual.numel() != x.numel() / x.size(-1) * p.weight.size(0)))
    return {};
  return place;
}

torch::Tensor linear_on_gpu(const GpuPlace& place, const torch::Tensor& x, const torch::Tensor& weight,
                            const GpuLinear& p) {
  const auto requires_grad = [](const torch::Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool gradients =
      torch::GradMode::is_enabled() && (requires_grad(x) || requires_grad(weight) || requires_grad(p.bias) ||
                                        requires_grad(p.scale) || requires_grad(p.residual));
  if (!gradients) return shaped_as(x, forward_product(place, half_rows(x), half_weight(weight, p.scale), p));
  check(!p.gelu_tanh, "linear: GELU in the product has no gradient");
  return recorded(place, x, weight, p)[0];
}

std::optional<torch::Tensor> gelu_mlp_in_products(const torch::Tensor& x, const NormParameters& norm,
                                                  const LinearParameters& first, const LinearParameters& last,
                                                  const torch::Tensor& residual) {
  if (!gradients_wanted()) return {};
  const auto place = product_place(x, first, {});
  if (!place || !products_take(last, first.weight.size(0)) || !in_product_type(residual)) return {};
  const int64_t numbers = x.numel() / x.size(-1) * last.weight.size(0);
  const auto fits = [](const LinearParameters& p) {
    return !p.bias.defined() || p.bias.numel() == p.weight.size(0);
  };
  const bool scaled = !last.scale.defined() || last.scale.size(-1) == last.weight.size(0);
  if (!fits(first) || !fits(last) || !scaled || (residual.defined() && residual.numel() != numbers))
    return {};
  const auto hidden = recorded(*place, norm.defined() ? ops::norm(x, norm) : x, first.weight,
                               {.bias = first.bias, .gelu_tanh = true});
  GpuLinear rest{.bias = last.bias, .before = hidden[0]};
  const bool one_product = residual.defined() ? !of_each_sample(last.scale) : !last.scale.defined();
  if (one_product) rest.scale = last.scale, rest.residual = residual;
  const torch::Tensor y = recorded(*place, hidden[1], last.weight, rest)[0];
  return one_product ? y : add_scaled(residual, y, last.scale);
}

}  // namespace tessera::ops
