#include "nn/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "core/error.h"

namespace tessera::nn {

torch::Tensor attend(const torch::Tensor& q_in, const torch::Tensor& k_in, const torch::Tensor& v,
                     const AttentionExtras& extras) {
  const torch::Tensor q = rotate(q_in, extras.rotation), k = rotate(k_in, extras.rotation);
  const std::string name = extras.name + ".attention";
  const bool tapped = extras.taps && extras.taps->wants(name);
  std::optional<torch::Tensor> bias;
  if (extras.bias.defined()) bias = extras.bias.to(q.scalar_type());
  if (!tapped && !extras.keep.defined())
    return at::scaled_dot_product_attention(q, k, v, bias, 0, extras.causal);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  torch::Tensor scores = torch::matmul(q * scale, k.transpose(-2, -1));
  if (bias) scores = scores + *bias;
  if (extras.causal) {
    const torch::Tensor later = torch::ones({q.size(2), k.size(2)}, q.options().dtype(torch::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  torch::Tensor weights = torch::softmax(scores, -1);
  if (extras.keep.defined()) weights = weights * extras.keep.to(weights.scalar_type());
  tap(extras.taps, name, weights);
  return torch::matmul(weights, v);
}

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

torch::Tensor AttentionImpl::forward(const torch::Tensor& x, const AttentionExtras& extras,
                                     const Tail& tail) {
  const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
  const torch::Tensor qkv = qkv_(x).view({batch, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  torch::Tensor q = qkv[0], k = qkv[1];
  if (q_norm_) {
    q = q_norm_(q);
    k = k_norm_(k);
  }
  return proj_->forward(attend(q, k, qkv[2], extras).transpose(1, 2).reshape({batch, tokens, width}), tail);
}

int64_t AttentionImpl::macs(int64_t tokens) const {
  return tokens * (qkv_->macs() + proj_->macs()) + 2 * tokens * tokens * proj_->weight.size(0);
}

}  // namespace tessera::nn
