#include "nn/attention_scores.h"

#include "core/error.h"

namespace tessera::nn {

torch::Tensor dot_scores(const torch::Tensor& queries, const torch::Tensor& keys) {
  check(queries.dim() == 3 && keys.dim() == 3 && queries.size(0) == keys.size(0) &&
            queries.size(2) == keys.size(2),
        "queries ", queries.sizes(), " and keys ", keys.sizes(),
        " must be [batch, tokens, width] of one width");
  return queries.matmul(keys.transpose(1, 2));
}

AdditiveScoresImpl::AdditiveScoresImpl(int64_t query_width, int64_t key_width, int64_t hidden) {
  query_ = register_module("W", Linear(query_width, hidden, /*with_bias=*/false));
  key_ = register_module("U", Linear(key_width, hidden));
  score_ = register_module("v", Linear(hidden, 1, /*with_bias=*/false));
}

torch::Tensor AdditiveScoresImpl::forward(const torch::Tensor& queries, const torch::Tensor& keys) const {
  const torch::Tensor sum = query_->forward(queries).unsqueeze(2) + key_->forward(keys).unsqueeze(1);
  return score_->forward(sum.tanh()).squeeze(-1);
}

GeneralScoresImpl::GeneralScoresImpl(int64_t query_width, int64_t key_width) {
  query_ = register_module("W", Linear(query_width, key_width, /*with_bias=*/false));
}

torch::Tensor GeneralScoresImpl::forward(const torch::Tensor& queries, const torch::Tensor& keys) const {
  return dot_scores(query_->forward(queries), keys);
}

torch::Tensor keys_within(const torch::Tensor& lengths, int64_t keys) {
  check(lengths.dim() == 1 && lengths.scalar_type() == torch::kInt64, "lengths are ", lengths.scalar_type(),
        " ", lengths.sizes(), ", must be int64 [batch]");
  return torch::arange(keys, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1);
}

Attended read_by_scores(const torch::Tensor& scores, const torch::Tensor& values, const torch::Tensor& seen) {
  check(scores.dim() == 3 && values.dim() == 3 && values.size(0) == scores.size(0) &&
            values.size(1) == scores.size(2),
        "scores ", scores.sizes(), " of values ", values.sizes(),
        " must be [batch, queries, keys] and [batch, keys, width]");
  if (!seen.defined()) {
    const torch::Tensor weights = scores.softmax(-1);
    return {weights.matmul(values), weights};
  }
  const torch::Tensor keys = seen.dim() == 2 ? seen.unsqueeze(1) : seen;
  // A number far below any score instead of -inf, since a softmax over no keys and its gradients would be
  // NaN.
  const double lowest = scores.scalar_type() == torch::kHalf ? -65504.0 : -1e38;
  const torch::Tensor weights = scores.masked_fill(~keys, lowest).softmax(-1) * keys.to(scores.scalar_type());
  return {weights.matmul(values), weights};
}

}  // namespace tessera::nn
