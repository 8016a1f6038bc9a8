#include "ops/linear.h"

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

torch::Tensor linear(const torch::Tensor& x, const LinearParameters& p, const torch::Tensor& residual,
                     LinearCache& cache) {
  const std::optional<kernels::Arithmetic> arithmetic = fused_arithmetic(x);
  if (!arithmetic || !fits(residual) || p.weight.scalar_type() == torch::kFloat64)
    return linear_unfused(x, p, residual);
  check_parameters(x, p, residual);
  const auto packed = cache.packed(p, *arithmetic);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = packed->out();
  const torch::Tensor y = torch::empty(
      shape, x.options().dtype(residual.defined() ? residual.scalar_type() : output_type(*arithmetic)));
  const RowsOfTensor rows = rows_of(x);
  const Profiled profiled("linear ", rows.count, " x ", packed->in(), " -> ",
                          packed->out() * (p.gate.defined() ? 2 : 1));
  kernels::LinearForward call;
  call.rows = rows.count, call.x = rows.rows, call.y = rows_to(y);
  RowsOfTensor before{};
  if (residual.defined()) {
    before = rows_of(residual);
    call.residual = before.rows;
  }
  kernels::linear_forward(*packed, call);
  return y;
}

}  // namespace tessera::ops
