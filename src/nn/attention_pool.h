// Attention pooling: a learned query reads the tokens. Lee et al. 2019, "Set transformer" (pooling by
// multihead attention); Zhai et al. 2022, "Scaling vision transformers" (map head), and SigLIP.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::nn {

struct AttentionPoolOptions {
  int64_t width = 0, heads = 1;
  int64_t hidden = 0;  // width inside the MLP
  MlpForm mlp = MlpForm::gelu;
  bool rms = false;  // RMSNorm instead of LayerNorm before the MLP
  double norm_eps = 1e-6;
  int64_t latents = 1;   // queries
  bool mean = false;     // pooled: the mean of their results, else the first
  bool qk_norm = false;  // LayerNorm of the queries and keys of each head
  bool qkv_bias = true;
};

//   y = proj(softmax(q(latent) k(x)^T / sqrt(d)) v(x)),   pooled = y + mlp(norm(y))
// Parameters latent [1, latents, width], q, kv, q_norm, k_norm, proj, norm, mlp, named as in timm's AttentionPoolLatent.
class AttentionPoolImpl : public torch::nn::Module {
 public:
  explicit AttentionPoolImpl(const AttentionPoolOptions& options);
  torch::Tensor forward(const torch::Tensor& x);  // [batch, tokens, width] -> [batch, width]
  int64_t macs(int64_t tokens) const;             // per image

 private:
  int64_t heads_;
  bool mean_;
  torch::Tensor latent_;
  Linear q_{nullptr}, kv_{nullptr}, proj_{nullptr};
  LayerNorm norm_{nullptr}, q_norm_{nullptr}, k_norm_{nullptr};
  RmsNorm rms_{nullptr};
  AnyMlp mlp_{nullptr};
};
TORCH_MODULE(AttentionPool);

}  // namespace tessera::nn
