#include "nn/linear.h"

#include <limits>

#include "core/error.h"
#include "nn/init.h"
#include "nn/layer_division.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "ops/lsq.h"

namespace tessera::nn {
namespace {

// Marks an input step size that no input has set yet.
constexpr double kUnset = std::numeric_limits<double>::infinity();

// Even a row of zeros needs a step size.
torch::Tensor log_of_step_size(const torch::Tensor& step_size) {
  return step_size.clamp_min(1e-12).log().flatten();
}

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
  if (!weight.is_meta()) {  // a meta model has only shapes
    const auto range = ops::quantised_range(bits.weights, true);
    rows.copy_(log_of_step_size(ops::first_step_size(weight, range, /*per_channel=*/true)));
    input.fill_(kUnset);
  }
  weight_log_step_ = register_parameter("weight_log_step", rows);
  input_log_step_ = register_parameter("input_log_step", input);
}

torch::Tensor LinearImpl::add_input_step_size() {
  if (!input_log_step_.defined())
    input_log_step_ = register_buffer("input_log_step", torch::zeros({1}, weight.options()));
  return input_log_step_;
}

// Quantises x with its learned step size.
torch::Tensor LinearImpl::rounded(const torch::Tensor& x) const {
  if (!quantised()) return x;
  const auto range = ops::quantised_range(bits_.activations, true);
  if (!known_.hold(input_log_step_)) {
    const torch::NoGradGuard no_grad;
    torch::Tensor(input_log_step_)
        .copy_(log_of_step_size(ops::first_step_size(x, range, /*per_channel=*/false)));
  }
  // The operation itself rounds to 8 bits.
  if (bits_.activations == 8 &&
      (ops::fused_arithmetic(x) == kernels::Arithmetic::int8 || (ops::composed_int8() && bits_.weights <= 8)))
    return x;
  return ops::learned_step_size_quantise(x, input_log_step_.exp(), range, /*offset=*/{},
                                         x.numel() / x.size(0));
}

DeferredNorm LinearImpl::seen(const DeferredNorm& x) const {
  return watcher_ || quantised() ? DeferredNorm(torch::Tensor(x)) : x;
}

ops::LinearParameters LinearImpl::parameters_for(const torch::Tensor& x) const {
  if (watcher_) watcher_(x);
  ops::LinearParameters parameters{.weight = weight, .bias = bias};
  parameters.weight_log_step = weight_log_step_;
  parameters.weight_bits = bits_.weights;
  if (bits_.activations <= 8) parameters.input_log_step = input_log_step_;
  return parameters;
}

torch::Tensor LinearImpl::forward(const DeferredNorm& in, const Epilogue& epilogue) const {
  const auto [x, norm] = seen(in);
  ops::LinearParameters parameters = parameters_for(x);
  parameters.scale = epilogue.scale;
  return ops::linear(rounded(x), parameters, epilogue.residual, *cache_, norm);
}

torch::Tensor LinearImpl::forward_gelu(const DeferredNorm& x) const {
  return activated(x, kernels::Activation::gelu);
}

torch::Tensor LinearImpl::forward_gelu_tanh(const DeferredNorm& x) const {
  return activated(x, kernels::Activation::gelu_tanh);
}

torch::Tensor LinearImpl::activated(const DeferredNorm& in, kernels::Activation activation) const {
  const auto [x, norm] = seen(in);
  ops::LinearParameters parameters = parameters_for(x);
  parameters.activation = activation;
  return ops::linear(rounded(x), parameters, {}, *cache_, norm);
}

namespace {

// Returns the division of this thread if it divides an MLP with this last layer.
const LayerDivision* division_of_mlp(const LinearImpl& last) {
  return last.quantised() ? nullptr : division_of(last.weight.size(1));
}

// Computes an MLP in parts. `hidden` returns some of the hidden channels, from the input and the run of these channels.
template <class Hidden>
torch::Tensor divided_mlp(const DeferredNorm& x, const LinearImpl& last, const LayerDivision& division,
                          const Epilogue& epilogue, const Hidden& hidden) {
  const Share channels = division.share_of(last.weight.size(1));
  const torch::Tensor part = hidden(enter_division(x, division), channels);
  return join_channels(part, last.weight, last.bias, channels, division, epilogue);
}

}  // namespace

MlpImpl::MlpImpl(int64_t width, int64_t hidden, bool with_bias) {
  fc1 = register_module("fc1", Linear(width, hidden, with_bias));
  fc2 = register_module("fc2", Linear(hidden, width, with_bias));
}

torch::Tensor MlpImpl::forward(const DeferredNorm& x, const Epilogue& epilogue) {
  const LayerDivision* const division = division_of_mlp(*fc2);
  if (!division) return fc2->forward(fc1->forward_gelu(x), epilogue);
  return divided_mlp(x, *fc2, *division, epilogue, [&](const torch::Tensor& in, const Share& channels) {
    ops::LinearParameters first = rows_of(fc1->weight, fc1->bias, channels);
    first.activation = kernels::Activation::gelu;
    return product(in, first);
  });
}

int64_t llama_hidden(int64_t width) { return (8 * width / 3 + 255) / 256 * 256; }

SwiGluImpl::SwiGluImpl(int64_t width, int64_t hidden, const SwiGluNames& names) {
  gate_ = register_module(names.gate, Linear(width, hidden, false));
  up_ = register_module(names.up, Linear(width, hidden, false));
  down_ = register_module(names.down, Linear(hidden, width, false));
}

torch::Tensor SwiGluImpl::forward(const DeferredNorm& in, const Epilogue& epilogue) {
  if (const LayerDivision* const division = division_of_mlp(*down_))
    return divided_mlp(in, *down_, *division, epilogue,
                       [&](const torch::Tensor& part, const Share& channels) {
                         ops::LinearParameters first = rows_of(up_->weight, {}, channels);
                         first.activation = kernels::Activation::silu_gate;
                         first.gate = rows_of(gate_->weight, {}, channels).weight;
                         return product(part, first);
                       });
  const auto [x, norm] = up_->seen(gate_->seen(in));
  if (up_->quantised())
    return down_->forward(ops::activation(ops::ActivationKind::silu, gate_(x), up_(x)), epilogue);
  ops::LinearParameters parameters = up_->parameters_for(x);  // gate_ sees the same x
  parameters.activation = kernels::Activation::silu_gate;
  parameters.gate = gate_->parameters_for(x).weight;
  return down_->forward(ops::linear(x, parameters, {}, *gated_, norm), epilogue);
}

PackedSwiGluImpl::PackedSwiGluImpl(int64_t width, int64_t hidden) {
  w12_ = register_module("w12", Linear(width, 2 * hidden));
  w3_ = register_module("w3", Linear(hidden, width));
}

namespace {

// silu(gate) * up for packed = [gate; up].
torch::Tensor gated(const torch::Tensor& packed) {
  const std::vector<torch::Tensor> halves = packed.chunk(2, -1);
  return ops::activation(ops::ActivationKind::silu, halves[0], halves[1]);
}

}  // namespace

torch::Tensor PackedSwiGluImpl::forward(const DeferredNorm& x, const Epilogue& epilogue) {
  if (const LayerDivision* const division = division_of_mlp(*w3_))
    return divided_mlp(x, *w3_, *division, epilogue, [&](const torch::Tensor& in, const Share& channels) {
      return gated(product(in, rows_of(w12_->weight, w12_->bias, channels, /*groups=*/2)));
    });
  return w3_->forward(gated(w12_(x)), epilogue);
}

AnyMlpImpl::AnyMlpImpl(MlpForm kind, int64_t width, int64_t hidden, bool with_bias) : kind_(kind) {
  const bool gated = kind == MlpForm::swiglu_packed;
  check(hidden > 0 && (!gated || hidden % 2 == 0), "an MLP's hidden width is ", hidden, ", must be positive",
        gated ? " and even" : "");
  fc1_ = register_module("fc1", Linear(width, hidden, with_bias));
  fc2_ = register_module("fc2", Linear(gated ? hidden / 2 : hidden, width, with_bias));
}

namespace {

torch::Tensor after_activation(const torch::Tensor& hidden, MlpForm form) {
  switch (form) {
    case MlpForm::gelu:
      return ops::activation(ops::ActivationKind::gelu, hidden);
    case MlpForm::gelu_tanh:
      return ops::activation(ops::ActivationKind::gelu_tanh, hidden);
    case MlpForm::relu:
      return torch::relu(hidden);
    case MlpForm::silu:
      return ops::activation(ops::ActivationKind::silu, hidden);
    case MlpForm::quick_gelu:
      return hidden * torch::sigmoid(1.702 * hidden);
    case MlpForm::swiglu_packed:
      return gated(hidden);
  }
  fail("an MLP of an unknown form");
}

}  // namespace

namespace {

// Returns the MLP with GELU by tanh in products of a GPU, or none.
std::optional<torch::Tensor> in_products(const LinearImpl& first, const LinearImpl& last,
                                         const DeferredNorm& in, const Epilogue& epilogue) {
  if (!first.plain() || !last.plain()) return {};
  const auto [x, norm] = first.seen(in);
  return ops::gelu_mlp_in_products(x, norm, {first.weight, first.bias},
                                   {.weight = last.weight, .bias = last.bias, .scale = epilogue.scale},
                                   epilogue.residual);
}

}  // namespace

torch::Tensor AnyMlpImpl::forward(const DeferredNorm& x, const Epilogue& epilogue) {
  if (const LayerDivision* const division = division_of_mlp(*fc2_))
    return divided_mlp(x, *fc2_, *division, epilogue, [&](const torch::Tensor& in, const Share& channels) {
      const int64_t groups = kind_ == MlpForm::swiglu_packed ? 2 : 1;
      return after_activation(product(in, rows_of(fc1_->weight, fc1_->bias, channels, groups)), kind_);
    });
  if (kind_ == MlpForm::gelu) return fc2_->forward(fc1_->forward_gelu(x), epilogue);
  if (kind_ == MlpForm::gelu_tanh) {
    if (const auto y = in_products(*fc1_, *fc2_, x, epilogue)) return *y;
    return fc2_->forward(fc1_->forward_gelu_tanh(x), epilogue);
  }
  return fc2_->forward(after_activation(fc1_->forward(x), kind_), epilogue);
}

}  // namespace tessera::nn
