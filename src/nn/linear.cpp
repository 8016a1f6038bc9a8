#include "nn/linear.h"

#include <limits>

#include "nn/init.h"
#include "ops/lsq.h"

namespace tessera::nn {
namespace {

// An input step that no input has set yet.
constexpr double kUnset = std::numeric_limits<double>::infinity();

// A row of zeros has a step too.
torch::Tensor log_of_step(const torch::Tensor& step) { return step.clamp_min(1e-12).log().flatten(); }

}  // namespace

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias) {
  weight = register_parameter("weight", zeros({out, in}));
  if (with_bias) bias = register_parameter("bias", zeros({out}));
}

void LinearImpl::quantise(const QuantisedBits& bits) {
  const torch::NoGradGuard no_grad;
  bits_ = bits;
  torch::Tensor rows = torch::empty({weight.size(0)}, weight.options()),
                input = torch::empty({1}, weight.options());
  if (!weight.is_meta()) {  // a sketch has shapes only
    const auto range = ops::quantised_range(bits.weights, true);
    rows.copy_(log_of_step(ops::first_step(weight, range, /*per_channel=*/true)));
    input.fill_(kUnset);
  }
  weight_log_step_ = register_parameter("weight_log_step", rows);
  input_log_step_ = register_parameter("input_log_step", input);
}

torch::Tensor LinearImpl::forward_quantised(const torch::Tensor& x, const torch::Tensor& scale,
                                            const torch::Tensor& residual) const {
  const auto range = ops::quantised_range(bits_.activations, true);
  if (input_log_step_.detach().isinf().item<bool>()) {
    const torch::NoGradGuard no_grad;
    torch::Tensor(input_log_step_).copy_(log_of_step(ops::first_step(x, range, /*per_channel=*/false)));
  }
  const torch::Tensor rounded =
      ops::learned_step_quantise(x, input_log_step_.exp(), range, /*offset=*/{}, x.numel() / x.size(0));
  const torch::Tensor weights = ops::learned_step_quantise(weight, weight_log_step_.exp().unsqueeze(1),
                                                           ops::quantised_range(bits_.weights, true));
  // The packed weights of `cache_` are told by their memory; these are new ones each time.
  return ops::linear_unfused(rounded, {.weight = weights, .bias = bias, .scale = scale}, residual);
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x, const Tail& tail) const {
  if (quantised()) return forward_quantised(x, tail.scale, tail.residual);
  return ops::linear(x, {.weight = weight, .bias = bias, .scale = tail.scale}, tail.residual, *cache_);
}

torch::Tensor LinearImpl::forward_gelu(const torch::Tensor& x) const {
  if (quantised()) return torch::gelu(forward_quantised(x, {}, {}));
  return ops::linear(x, {.weight = weight, .bias = bias, .activation = kernels::Activation::gelu}, {},
                     *cache_);
}

MlpImpl::MlpImpl(int64_t width, int64_t hidden, bool with_bias) {
  fc1 = register_module("fc1", Linear(width, hidden, with_bias));
  fc2 = register_module("fc2", Linear(hidden, width, with_bias));
}

int64_t llama_hidden(int64_t width) { return (8 * width / 3 + 255) / 256 * 256; }

SwiGluImpl::SwiGluImpl(int64_t width, int64_t hidden, const SwiGluNames& names) {
  gate_ = register_module(names.gate, Linear(width, hidden, false));
  up_ = register_module(names.up, Linear(width, hidden, false));
  down_ = register_module(names.down, Linear(hidden, width, false));
}

torch::Tensor SwiGluImpl::forward(const torch::Tensor& x, const Tail& tail) {
  if (up_->quantised()) return down_->forward(torch::silu(gate_(x)) * up_(x), tail);
  const torch::Tensor gated = ops::linear(
      x, {.weight = up_->weight, .activation = kernels::Activation::silu_gate, .gate = gate_->weight}, {},
      *gated_);
  return down_->forward(gated, tail);
}

PackedSwiGluImpl::PackedSwiGluImpl(int64_t width, int64_t hidden) {
  w12_ = register_module("w12", Linear(width, 2 * hidden));
  w3_ = register_module("w3", Linear(hidden, width));
}

torch::Tensor PackedSwiGluImpl::forward(const torch::Tensor& x, const Tail& tail) {
  const std::vector<torch::Tensor> halves = w12_(x).chunk(2, -1);
  return w3_->forward(torch::silu(halves[0]) * halves[1], tail);
}

}  // namespace tessera::nn
