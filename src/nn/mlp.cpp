#include "nn/mlp.h"

#include "core/error.h"

namespace tessera::nn {

AnyMlpImpl::AnyMlpImpl(MlpForm kind, int64_t width, int64_t hidden, bool with_bias) : kind_(kind) {
  const bool gated = kind == MlpForm::swiglu_packed;
  check(hidden > 0 && (!gated || hidden % 2 == 0), "an MLP's hidden width is ", hidden, ", must be positive",
        gated ? " and even" : "");
  fc1_ = register_module("fc1", Linear(width, hidden, with_bias));
  fc2_ = register_module("fc2", Linear(gated ? hidden / 2 : hidden, width, with_bias));
}

torch::Tensor AnyMlpImpl::forward(const DeferredNorm& x, const Epilogue& epilogue) {
  if (kind_ == MlpForm::gelu) return fc2_->forward(fc1_->forward_gelu(x), epilogue);
  if (kind_ == MlpForm::gelu_tanh) return fc2_->forward(fc1_->forward_gelu_tanh(x), epilogue);
  const torch::Tensor hidden = fc1_->forward(x);
  if (kind_ == MlpForm::relu) return fc2_->forward(torch::relu(hidden), epilogue);
  if (kind_ == MlpForm::silu) return fc2_->forward(torch::silu(hidden), epilogue);
  if (kind_ == MlpForm::quick_gelu) return fc2_->forward(hidden * torch::sigmoid(1.702 * hidden), epilogue);
  const std::vector<torch::Tensor> halves = hidden.chunk(2, -1);
  return fc2_->forward(torch::silu(halves[0]) * halves[1], epilogue);
}

}  // namespace tessera::nn
