#include "nn/attention_pool.h"

#include "core/error.h"
#include "nn/attention.h"
#include "nn/init.h"

namespace tessera::nn {

AttentionPoolImpl::AttentionPoolImpl(const AttentionPoolOptions& options) : heads_(options.heads) {
  const int64_t width = options.width;
  check(heads_ > 0 && width % heads_ == 0, "the width ", width, " must be a multiple of the number of heads ",
        heads_);
  latent_ = register_parameter("latent", zeros({1, 1, width}));
  q_ = register_module("q", Linear(width, width));
  kv_ = register_module("kv", Linear(width, 2 * width));
  proj_ = register_module("proj", Linear(width, width));
  if (options.rms)
    rms_ = register_module("norm", RmsNorm(width, options.norm_eps));
  else
    norm_ = register_module("norm", LayerNorm(width, LayerNormOptions{.eps = options.norm_eps}));
  mlp_ = register_module("mlp", AnyMlp(options.mlp, width, options.hidden));
}

torch::Tensor AttentionPoolImpl::forward(const torch::Tensor& x) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const auto query =
      q_(latent_).view({1, 1, heads_, width / heads_}).transpose(1, 2).expand({batch, -1, -1, -1});
  const torch::Tensor kv = kv_(x).view({batch, tokens, 2, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  const torch::Tensor y = proj_(attend(query, kv[0], kv[1]).transpose(1, 2).reshape({batch, width}));
  const DeferredNorm normed = rms_ ? rms_->before_linear(y) : norm_->before_linear(y);
  return mlp_->forward(normed, {.residual = y});
}

int64_t AttentionPoolImpl::macs(int64_t tokens) const {
  const int64_t width = proj_->weight.size(0);
  return q_->macs() + tokens * (kv_->macs() + 2 * width) + proj_->macs() + mlp_->macs();
}

}  // namespace tessera::nn
