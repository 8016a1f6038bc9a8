// Attention of one sequence to another, and a pooling based on it.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::nn {

// softmax(q(x) k(context)^T / sqrt(d)) v(context) with several heads (Vaswani et al. 2017). Parameters q
// [width, width], kv [2 width, context_width] and proj, with biases.
class CrossAttentionImpl : public torch::nn::Module {
 public:
  CrossAttentionImpl(int64_t width, int64_t context_width, int64_t heads);
  // x [batch or 1, tokens, width], context [batch, keys, context_width] -> [batch, tokens, width]. `extras`
  // may contain a bias and taps.
  torch::Tensor forward(const DeferredNorm& x, const DeferredNorm& context,
                        const AttentionExtras& extras = {}, const Epilogue& epilogue = {});
  int64_t macs(int64_t tokens, int64_t keys) const;

 private:
  int64_t heads_;
  Linear q_{nullptr}, kv_{nullptr}, proj_{nullptr};
};
TORCH_MODULE(CrossAttention);

// Learned queries that read a sequence (Yu et al. 2022, CoCa, section 3.2): attention of ln_q(query) to
// ln_k(x). Parameters query [queries, width], ln_q, ln_k, attn.
class AttentionPoolerImpl : public torch::nn::Module {
 public:
  AttentionPoolerImpl(int64_t queries, int64_t width, int64_t context_width, int64_t heads,
                      double norm_eps = 1e-5);
  // [batch, tokens, context_width] -> [batch, queries, width]; `extras` may contain taps.
  torch::Tensor forward(const torch::Tensor& x, const AttentionExtras& extras = {});
  int64_t macs(int64_t tokens) const { return attn_->macs(query_.size(0), tokens); }

 private:
  torch::Tensor query_;
  LayerNorm ln_q_{nullptr}, ln_k_{nullptr};
  CrossAttention attn_{nullptr};
};
TORCH_MODULE(AttentionPooler);

}  // namespace tessera::nn
