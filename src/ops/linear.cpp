#include "ops/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <mutex>
#include <optional>
#include <vector>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/profile.h"

namespace tessera::ops {
namespace {

using kernels::Activation;

// What tells whether a tensor is the one that was packed. Tensors made in inference mode have no version.
struct Identity {
  const void* data = nullptr;
  int64_t version = 0;
  bool operator==(const Identity&) const = default;
};
Identity identity_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.const_data_ptr(), tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version())};
}

struct Key {
  std::array<Identity, 4> tensors;
  const kernels::LinearImplementation* implementation = nullptr;
  bool operator==(const Key&) const = default;
};

kernels::MatrixView view_of(const torch::Tensor& matrix) {
  if (!matrix.defined()) return {};
  return {matrix.const_data_ptr<float>(), kernels::Element::f32, matrix.stride(0), matrix.stride(1)};
}

kernels::PackedLinear pack(const LinearParameters& p, const kernels::LinearImplementation& implementation) {
  const torch::Tensor weight = floats(p.weight), bias = floats(p.bias), gate = floats(p.gate),
                      scale = floats(p.scale);
  kernels::LinearLayer layer;
  layer.in = weight.size(1), layer.out = weight.size(0);
  layer.weight = view_of(weight), layer.gate = view_of(gate);
  layer.activation = p.activation;
  layer.bias = float_pointer(bias), layer.scale = float_pointer(scale);
  return {layer, implementation};
}

void check_parameters(const torch::Tensor& x, const LinearParameters& p, const torch::Tensor& residual) {
  check(p.weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == p.weight.size(1), "linear: x is ", x.sizes(),
        ", the weight ", p.weight.sizes());
  const int64_t out = p.weight.size(0);
  check((!p.bias.defined() || p.bias.numel() == out) && (!p.scale.defined() || p.scale.numel() == out),
        "linear: bias and scale must have ", out, " numbers");
  check(!p.gate.defined() || p.gate.sizes() == p.weight.sizes(), "linear: the gate's weight is ",
        p.gate.sizes(), ", must be ", p.weight.sizes());
  check(!residual.defined() || (residual.numel() / out * x.size(-1) == x.numel() && residual.size(-1) == out),
        "linear: x is ", x.sizes(), ", the residual ", residual.sizes());
}

bool fits(const torch::Tensor& residual) {
  return !residual.defined() || residual.scalar_type() == torch::kFloat32 ||
         residual.scalar_type() == torch::kBFloat16;
}

}  // namespace

struct LinearCache::State {
  std::mutex mutex;
  Key key;
  std::shared_ptr<const kernels::PackedLinear> packed;
};

LinearCache::LinearCache() : state_(std::make_unique<State>()) {}
LinearCache::~LinearCache() = default;

std::shared_ptr<const kernels::PackedLinear> LinearCache::packed(const LinearParameters& p,
                                                                 kernels::Arithmetic arithmetic) {
  const Key key{{identity_of(p.weight), identity_of(p.bias), identity_of(p.gate), identity_of(p.scale)},
                &kernels::choose_linear(arithmetic)};
  const std::lock_guard lock(state_->mutex);
  if (!state_->packed || !(state_->key == key)) {
    state_->packed.reset();
    state_->packed = std::make_shared<const kernels::PackedLinear>(pack(p, *key.implementation));
    state_->key = key;
  }
  return state_->packed;
}

torch::Tensor linear_unfused(const torch::Tensor& x, const LinearParameters& p,
                             const torch::Tensor& residual) {
  torch::Tensor y = torch::linear(x, p.weight, p.bias);
  if (p.activation == Activation::gelu) y = torch::gelu(y);
  if (p.activation == Activation::silu_gate) y = torch::silu(torch::linear(x, p.gate)) * y;
  if (p.scale.defined()) y = y * p.scale;
  return residual.defined() ? residual + y : y;
}

namespace {

// The layer's kernel, x and y of any number of axes.
torch::Tensor run(const kernels::PackedLinear& packed, const torch::Tensor& x, torch::ScalarType type,
                  const torch::Tensor& residual = {}, bool gated = false) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = packed.out();
  const torch::Tensor y = torch::empty(shape, x.options().dtype(type));
  const RowsOfTensor rows = rows_of(x);
  const Profiled profiled("linear ", rows.count, " x ", packed.in(), " -> ", packed.out(),
                          gated ? " gated" : "");
  kernels::LinearForward call;
  call.rows = rows.count, call.x = rows.rows, call.y = rows_to(y);
  RowsOfTensor before{};
  if (residual.defined()) {
    before = rows_of(residual);
    call.residual = before.rows;
  }
  kernels::linear_forward(packed, call);
  return y;
}

// The product in bfloat16 with its gradients: dx = dy W with W packed the other way round, dW = dy^T x and db
// in float.
struct ProductNode : torch::autograd::Function<ProductNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const std::optional<torch::Tensor>& bias,
                               const kernels::PackedLinear& packed) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    return run(packed, x, torch::kBFloat16);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    torch::Tensor dx, dw, db;
    if (ctx->needs_input_grad(0)) {
      kernels::LinearLayer turned;
      turned.in = weight.size(0), turned.out = weight.size(1);
      const torch::Tensor plain = floats(weight);
      turned.weight = {plain.const_data_ptr(), kernels::Element::f32, 1, plain.stride(0)};
      dx = run({turned, kernels::Arithmetic::bf16}, dy, x.scalar_type());
    }
    const bool with_bias = ctx->saved_data["bias"].toBool();
    if (ctx->needs_input_grad(1)) {
      dw = torch::empty(weight.sizes(), weight.options());
      if (with_bias) db = torch::empty({weight.size(0)}, weight.options());
      const RowsOfTensor rows = rows_of(x), outputs = rows_of(dy);
      const Profiled profiled("linear gradients");
      kernels::linear_gradients({rows.count, weight.size(1), weight.size(0), rows.rows, outputs.rows,
                                 dw.mutable_data_ptr<float>(),
                                 with_bias ? db.mutable_data_ptr<float>() : nullptr});
    } else if (with_bias && ctx->needs_input_grad(2)) {
      db = dy.reshape({-1, weight.size(0)}).sum(0, false, torch::kFloat32);
    }
    return {dx, dw, db, {}};
  }
};

// x W^T + b where gradients are wanted now or later: the same numbers for both.
torch::Tensor product(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                      LinearCache& cache) {
  const auto packed = cache.packed({.weight = weight, .bias = bias}, kernels::Arithmetic::bf16);
  if (!torch::GradMode::is_enabled()) return run(*packed, x, torch::kBFloat16);
  const std::optional<torch::Tensor> given = bias.defined() ? std::optional(bias) : std::nullopt;
  return ProductNode::apply(x, weight, given, *packed);
}

// The composition, with products on packed weights in place of torch::linear.
torch::Tensor linear_with_gradients(const torch::Tensor& x, const LinearParameters& p,
                                    const torch::Tensor& residual, LinearCache& cache) {
  torch::Tensor y = product(x, p.weight, p.bias, cache);
  if (p.activation == Activation::gelu) y = torch::gelu(y);
  if (p.scale.defined()) y = y * p.scale;
  return residual.defined() ? residual + y : y;
}

bool in_floats(const LinearParameters& p) {
  return p.weight.scalar_type() == torch::kFloat32 &&
         (!p.bias.defined() || p.bias.scalar_type() == torch::kFloat32);
}

}  // namespace

torch::Tensor linear(const torch::Tensor& x, const LinearParameters& p, const torch::Tensor& residual,
                     LinearCache& cache) {
  // In float LibTorch's own products are as fast, and need no packing in every step.
  if (!fused_arithmetic(x) && product_arithmetic(x) == kernels::Arithmetic::bf16 && in_floats(p) &&
      p.activation != Activation::silu_gate) {
    check_parameters(x, p, residual);
    return linear_with_gradients(x, p, residual, cache);
  }
  const std::optional<kernels::Arithmetic> arithmetic = fused_arithmetic(x);
  if (!arithmetic || !fits(residual) || p.weight.scalar_type() == torch::kFloat64)
    return linear_unfused(x, p, residual);
  check_parameters(x, p, residual);
  const auto packed = cache.packed(p, *arithmetic);
  return run(*packed, x, residual.defined() ? residual.scalar_type() : output_type(*arithmetic), residual,
             p.gate.defined());
}

}  // namespace tessera::ops
