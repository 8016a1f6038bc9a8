#include "nn/attention_pool.h"

#include "core/error.h"
#include "nn/attention.h"
#include "nn/init.h"

namespace tessera::nn {

AttentionPoolImpl::AttentionPoolImpl(const AttentionPoolOptions& options)
    : heads_(options.heads), mean_(options.mean) {
  const int64_t width = options.width;
  check(heads_ > 0 && width % heads_ == 0, "the width ", width, " must be a multiple of the number of heads ",
        heads_);
  latent_ = register_parameter("latent", zeros({1, options.latents, width}));
  q_ = register_module("q", Linear(width, width, options.qkv_bias));
  kv_ = register_module("kv", Linear(width, 2 * width, options.qkv_bias));
  proj_ = register_module("proj", Linear(width, width));
  if (options.rms)
    rms_ = register_module("norm", RmsNorm(width, options.norm_eps));
  else
    norm_ = register_module("norm", LayerNorm(width, LayerNormOptions{.eps = options.norm_eps}));
  const LayerNormOptions of_heads{.eps = options.norm_eps};
  if (options.qk_norm) {
    q_norm_ = register_module("q_norm", LayerNorm(width / heads_, of_heads));
    k_norm_ = register_module("k_norm", LayerNorm(width / heads_, of_heads));
  }
  mlp_ = register_module("mlp", AnyMlp(options.mlp, width, options.hidden));
}

torch::Tensor AttentionPoolImpl::forward(const torch::Tensor& x) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const int64_t latents = latent_.size(1);
  torch::Tensor query = q_(latent_).view({1, latents, heads_, width / heads_}).transpose(1, 2);
  if (q_norm_) query = q_norm_(query);
  const torch::Tensor kv = kv_(x).view({batch, tokens, 2, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  const torch::Tensor read =
      attend(query.expand({batch, -1, -1, -1}), k_norm_ ? k_norm_(kv[0]) : kv[0], kv[1]);
  const torch::Tensor y = proj_(read.transpose(1, 2).reshape({batch * latents, width}));
  const DeferredNorm normed = rms_ ? rms_->before_linear(y) : norm_->before_linear(y);
  const torch::Tensor pooled = mlp_->forward(normed, {.residual = y});
  if (latents == 1) return pooled;
  return mean_ ? pooled.view({batch, latents, width}).mean(1)
               : pooled.view({batch, latents, width}).select(1, 0);
}

int64_t AttentionPoolImpl::macs(int64_t tokens) const {
  const int64_t width = proj_->weight.size(0);
  const int64_t latents = latent_.size(1);
  return latents * (q_->macs() + proj_->macs() + mlp_->macs()) + tokens * (kv_->macs() + latents * 2 * width);
}

}  // namespace tessera::nn
