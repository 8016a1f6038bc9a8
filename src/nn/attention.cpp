#include "nn/attention.h"

#include <cmath>

#include "core/error.h"

namespace tessera::nn {

AttentionImpl::AttentionImpl(int64_t width, int64_t heads, bool qkv_bias, bool qk_norm) : heads_(heads) {
  check(heads > 0 && width % heads == 0, "the width ", width, " must be a multiple of the number of heads ",
        heads);
  qkv_ = register_module("qkv", Linear(width, 3 * width, qkv_bias));
  if (qk_norm) {
    q_norm_ = register_module("q_norm", LayerNorm(width / heads));
    k_norm_ = register_module("k_norm", LayerNorm(width / heads));
  }
  proj_ = register_module("proj", Linear(width, width));
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x, Taps* taps, const std::string& name) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const torch::Tensor qkv = qkv_(x).view({batch, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  torch::Tensor q = qkv[0], k = qkv[1];
  const torch::Tensor v = qkv[2];  // [batch, heads, tokens, d]
  if (q_norm_) {
    q = q_norm_(q);
    k = k_norm_(k);
  }
  if (taps && taps->wants(name + ".attention")) {
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    tap(taps, name + ".attention", torch::softmax(torch::matmul(q * scale, k.transpose(-2, -1)), -1));
  }
  const torch::Tensor mixed = at::scaled_dot_product_attention(q, k, v);
  return proj_(mixed.transpose(1, 2).reshape({batch, tokens, width}));
}

int64_t AttentionImpl::macs(int64_t tokens) const {
  return tokens * (qkv_->macs() + proj_->macs()) + 2 * tokens * tokens * proj_->weight.size(0);
}

}  // namespace tessera::nn
