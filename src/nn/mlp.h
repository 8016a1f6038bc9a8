// The other feed-forward networks of published ViTs with the two matrices of nn/linear.h's Mlp.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/linear.h"

namespace tessera::nn {

// gelu: fc2(gelu(fc1 x)), exact (Hendrycks & Gimpel 2016). gelu_tanh: its approximation with tanh (SigLIP).
// quick_gelu: x sigmoid(1.702 x) instead (the first CLIP). relu, silu: as named. swiglu_packed: fc1 gives
// [gate; up], half of the hidden width each, then fc2(silu(gate) * up) (DINOv2's giant; timm's SwiGLUPacked).
enum class MlpForm { gelu, gelu_tanh, quick_gelu, relu, silu, swiglu_packed };

// Parameters fc1 and fc2, of [hidden, width] and [width, hidden] (swiglu_packed: [width, hidden / 2]).
class AnyMlpImpl : public torch::nn::Module {
 public:
  AnyMlpImpl(MlpForm kind, int64_t width, int64_t hidden, bool with_bias = true);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return fc1_->macs() + fc2_->macs(); }  // per token

 private:
  MlpForm kind_;
  Linear fc1_{nullptr}, fc2_{nullptr};
};
TORCH_MODULE(AnyMlp);

}  // namespace tessera::nn
