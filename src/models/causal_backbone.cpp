#include "models/causal_backbone.h"

#include "core/error.h"

namespace tessera::models {

Cache CausalBackbone::start(int64_t batch) const {
  if (const std::string why = step_refusal(); !why.empty())
    fail_usage("this model does not encode token after token: ", why);
  check(batch > 0, "a cache for ", batch, " sequences was asked for, must be at least 1");
  return {.batch = batch,
          .blocks = std::vector<std::vector<torch::Tensor>>(static_cast<size_t>(block_count()))};
}

torch::Tensor CausalBackbone::step(const torch::Tensor& tokens, Cache& cache) {
  check(!is_training(), "a model steps token after token in evaluation mode only");
  check(tokens.dim() == 3 && tokens.size(0) == cache.batch && tokens.size(1) == 1 &&
            tokens.size(2) == token_width(),
        "the next tokens are ", tokens.sizes(), ", must be [", cache.batch, ", 1, ", token_width(), "]");
  check(static_cast<int64_t>(cache.blocks.size()) == block_count(), "the cache is of a model with ",
        cache.blocks.size(), " blocks, this one has ", block_count());
  const int64_t place = cache.tokens;
  check(place < sequence_length(), "all ", sequence_length(), " tokens of model.image_size came already");
  torch::Tensor x = tokens;
  if (const torch::Tensor position = position_at(place); position.defined()) x = x + position;
  for (int64_t i = 0; i < block_count(); ++i)
    x = step_block(i, x, place, cache.blocks[static_cast<size_t>(i)]);
  ++cache.tokens;
  return norm_tokens(x);
}

}  // namespace tessera::models
