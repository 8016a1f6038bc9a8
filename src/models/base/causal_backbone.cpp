#include "models/base/causal_backbone.h"

#include "core/error.h"
#include "nn/units.h"

namespace tessera::models {

Cache CausalBackbone::start(int64_t batch) const {
  if (const std::string why = step_refusal(); !why.empty())
    fail_usage("this model does not encode token after token: ", why);
  return empty_cache(batch, {});
}

Cache CausalBackbone::start_at(int64_t batch, std::vector<int64_t> places) const {
  if (const std::string why = next_refusal(); !why.empty())
    fail_usage("this model does not predict patch after patch: ", why);
  for (const int64_t place : places)
    check(place >= 0 && place < sequence_length(), "the place of a token is ", place, ", must be 0 to ",
          sequence_length() - 1);
  return empty_cache(batch, std::move(places));
}

Cache CausalBackbone::empty_cache(int64_t batch, std::vector<int64_t> places) const {
  check(batch > 0, "a cache for ", batch, " sequences, must be at least 1");
  return {.batch = batch,
          .places = std::move(places),
          .blocks = std::vector<std::vector<torch::Tensor>>(static_cast<size_t>(block_count()))};
}

torch::Tensor CausalBackbone::step(const torch::Tensor& tokens, Cache& cache) {
  check(!is_training(), "a model steps token after token in evaluation mode only");
  check(tokens.dim() == 3 && tokens.size(0) == cache.batch && tokens.size(1) == 1 &&
            tokens.size(2) == token_width(),
        "the next tokens are ", tokens.sizes(), ", must be [", cache.batch, ", 1, ", token_width(), "]");
  check(static_cast<int64_t>(cache.blocks.size()) == block_count(), "the cache is of a model with ",
        cache.blocks.size(), " blocks, this one has ", block_count());
  const int64_t count = cache.places.empty() ? sequence_length() : static_cast<int64_t>(cache.places.size());
  check(cache.tokens < count, "all ", count, " tokens of model.image_size are encoded already");
  const int64_t place = cache.places.empty() ? cache.tokens : cache.places[static_cast<size_t>(cache.tokens)];
  torch::Tensor x = tokens;
  if (const torch::Tensor position = position_at(place); position.defined()) x = x + position;
  for (int64_t i = 0; i < block_count(); ++i) {
    const auto body = [&](const torch::Tensor& in) {
      return step_block(i, in, place, cache.blocks[static_cast<size_t>(i)]);
    };
    x = nn::run_unit(x, {.body = body, .parameters = [&] { return parameters_of_block(i); }});
  }
  ++cache.tokens;
  return norm_tokens(x);
}

}  // namespace tessera::models
