// Multi-head self-attention as in ViT.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "nn/context.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::nn {

// softmax(q k^T / sqrt(d)) v over all tokens (Vaswani et al. 2017). Parameters qkv, proj, and with qk_norm a
// LayerNorm over each head's q and k.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int64_t width, int64_t heads, bool qkv_bias = true, bool qk_norm = false);
  // [batch, tokens, width] -> the same. The tap `name`.attention is [batch, heads, tokens, tokens].
  torch::Tensor forward(const torch::Tensor& x, Taps* taps = nullptr, const std::string& name = "");
  int64_t macs(int64_t tokens) const;

 private:
  int64_t heads_;
  Linear qkv_{nullptr}, proj_{nullptr};
  LayerNorm q_norm_{nullptr}, k_norm_{nullptr};
};
TORCH_MODULE(Attention);

}  // namespace tessera::nn
