// Linear layers, and the feed-forward networks made of them.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace tessera::nn {

// y = x W^T + b; parameters `weight` [out, in] and `bias` [out], zero until initialised.
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias = true);
  torch::Tensor forward(const torch::Tensor& x) const { return torch::linear(x, weight, bias); }
  int64_t macs() const { return weight.numel(); }  // for one row of x
  torch::Tensor weight, bias;                      // bias is undefined without one
};
TORCH_MODULE(Linear);

// fc2(gelu(fc1 x)), exact GELU (Hendrycks & Gimpel 2016), as in ViT.
class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(int64_t width, int64_t hidden, bool with_bias = true);
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::gelu(fc1(x))); }
  int64_t macs() const { return fc1->macs() + fc2->macs(); }
  Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Mlp);

}  // namespace tessera::nn
