#include "nn/linear.h"

#include "nn/init.h"

namespace tessera::nn {

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias) {
  weight = register_parameter("weight", zeros({out, in}));
  if (with_bias) bias = register_parameter("bias", zeros({out}));
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x, const Tail& tail) const {
  return ops::linear(x, {.weight = weight, .bias = bias, .scale = tail.scale}, tail.residual, *cache_);
}

torch::Tensor LinearImpl::forward_gelu(const torch::Tensor& x) const {
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
