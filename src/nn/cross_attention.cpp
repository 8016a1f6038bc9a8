#include "nn/cross_attention.h"

#include "core/error.h"
#include "nn/init.h"

namespace tessera::nn {

CrossAttentionImpl::CrossAttentionImpl(int64_t width, int64_t context_width, int64_t heads) : heads_(heads) {
  check(heads > 0 && width % heads == 0, "the width ", width, " must be a multiple of the number of heads ",
        heads);
  q_ = register_module("q", Linear(width, width));
  kv_ = register_module("kv", Linear(context_width, 2 * width));
  proj_ = register_module("proj", Linear(width, width));
}

torch::Tensor CrossAttentionImpl::forward(const DeferredNorm& x, const DeferredNorm& context,
                                          const AttentionExtras& extras, const Epilogue& epilogue) {
  const auto heads = [&](const torch::Tensor& y) {
    return y.unflatten(-1, {heads_, y.size(-1) / heads_}).transpose(1, 2);
  };
  const torch::Tensor kv = kv_(context);
  const int64_t width = kv.size(-1) / 2;
  torch::Tensor q = heads(q_(x));
  if (q.size(0) != kv.size(0)) q = q.expand({kv.size(0), -1, -1, -1});
  const torch::Tensor read =
      attend(q, heads(kv.narrow(-1, 0, width)), heads(kv.narrow(-1, width, width)), extras);
  return proj_->forward(AttentionImpl::merge(read), epilogue);
}

int64_t CrossAttentionImpl::macs(int64_t tokens, int64_t keys) const {
  return tokens * (q_->macs() + proj_->macs()) + keys * kv_->macs() +
         2 * tokens * keys * proj_->weight.size(0);
}

AttentionPoolerImpl::AttentionPoolerImpl(int64_t queries, int64_t width, int64_t context_width, int64_t heads,
                                         double norm_eps) {
  query_ = register_parameter("query", zeros({queries, width}));
  attn_ = register_module("attn", CrossAttention(width, context_width, heads));
  ln_q_ = register_module("ln_q", LayerNorm(width, LayerNormOptions{.eps = norm_eps}));
  ln_k_ = register_module("ln_k", LayerNorm(context_width, LayerNormOptions{.eps = norm_eps}));
}

torch::Tensor AttentionPoolerImpl::forward(const torch::Tensor& x, const AttentionExtras& extras) {
  return attn_->forward(ln_q_->before_linear(query_.unsqueeze(0)), ln_k_->before_linear(x), extras);
}

}  // namespace tessera::nn
