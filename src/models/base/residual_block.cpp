#include "models/base/residual_block.h"

#include "core/error.h"
#include "models/base/windows.h"
#include "nn/drop_path.h"
#include "nn/init.h"

namespace tessera::models {

int64_t default_hidden(MlpKind mlp, int64_t dim, double mlp_ratio) {
  return mlp == MlpKind::gelu ? static_cast<int64_t>(static_cast<double>(dim) * mlp_ratio)
                              : nn::llama_hidden(dim);
}

ResidualBlock::ResidualBlock(const ResidualBlockOptions& options) : options_(options) {
  if (options.init_values > 0) {
    gamma_1_ = register_parameter("gamma_1", nn::ones({options.dim}).mul_(options.init_values));
    gamma_2_ = register_parameter("gamma_2", nn::ones({options.dim}).mul_(options.init_values));
  }
  norm1_ = register_norm(*this, "norm1", options.norm, options.dim, options.eps);
  norm2_ = register_norm(*this, "norm2", options.norm, options.dim, options.eps);
  if (options.mlp == MlpKind::swiglu)
    swiglu_ = register_module("mlp", nn::SwiGlu(options.dim, options.hidden, options.names));
  else if (options.mlp == MlpKind::swiglu_packed)
    packed_ = register_module("mlp", nn::PackedSwiGlu(options.dim, options.hidden));
  else
    gelu_ = register_module("mlp", nn::Mlp(options.dim, options.hidden));
}

torch::Tensor ResidualBlock::apply(const torch::Tensor& x, const Context& context, const Mixer& attention) {
  const auto add = [&](const torch::Tensor& to, const torch::Tensor& gamma, int64_t layer,
                       const auto& branch) {
    return nn::residual(to, gamma, options_.drop_path, is_training(), layer, context, branch);
  };
  const torch::Tensor y =
      add(x, gamma_1_, 2 * options_.index,
          [&](const torch::Tensor& kept, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
            return attention(norm1_.before_linear(kept), epilogue, samples);
          });
  return add(y, gamma_2_, 2 * options_.index + 1,
             [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
               return feed_forward(norm2_.before_linear(kept), epilogue);
             });
}

torch::Tensor ResidualBlock::feed_forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue) {
  if (swiglu_) return swiglu_->forward(x, epilogue);
  return packed_ ? packed_->forward(x, epilogue) : gelu_->forward(x, epilogue);
}

int64_t ResidualBlock::mlp_macs() const {
  if (swiglu_) return swiglu_->macs();
  return packed_ ? packed_->macs() : gelu_->macs();
}

AttentionBlock::AttentionBlock(const ResidualBlockOptions& options, int64_t heads, bool qkv_bias)
    : ResidualBlock(options) {
  attn_ = register_module("attn", nn::Attention(options.dim, heads, qkv_bias));
}

torch::Tensor AttentionBlock::forward(const torch::Tensor& x, const nn::AttentionExtras& shared,
                                      const Context& context) {
  nn::AttentionExtras extras = shared;
  extras.taps = context.taps;
  extras.name = tap_name();
  return apply(
      x, context,
      [&](const nn::DeferredNorm& normed, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
        return attn_->forward(normed, nn::of_samples(extras, samples), epilogue);
      });
}

torch::Tensor AttentionBlock::forward_in_windows(const torch::Tensor& x, const TokenPlaces& places,
                                                 const BlockWindows& windows, const Context& context) {
  check(!places.kept.defined() && places.middle == 0, tap_name(), ": windows need all patches of the map");
  nn::AttentionExtras inside = windows.inside;
  inside.taps = context.taps;
  inside.name = tap_name();
  const int64_t side = windows.side, first = places.before, count = places.patches();
  const auto attention = [&](const nn::DeferredNorm& deferred, const nn::Epilogue& epilogue,
                             const torch::Tensor&) {
    const torch::Tensor normed = deferred;
    const torch::Tensor map =
        normed.slice(1, first, first + count).unflatten(1, {places.rows, places.columns});
    torch::Tensor mixed = attn_->mix(to_windows(map, side, side), inside);
    mixed = from_windows(mixed, side, side, places.rows, places.columns).flatten(1, 2);
    if (places.count() > count) {
      const torch::Tensor others =
          attn_->mix(torch::cat({normed.slice(1, 0, first), normed.slice(1, first + count)}, 1));
      mixed = torch::cat({others.slice(1, 0, first), mixed, others.slice(1, first)}, 1);
    }
    return attn_->output(mixed, epilogue);
  };
  return apply(x, context, attention);
}

int64_t AttentionBlock::macs(int64_t rows, int64_t columns, int64_t side, int64_t others) const {
  const int64_t tokens = rows * columns + others;
  if (side == 0) return macs(tokens);
  return tokens * mlp_macs() + window_count(rows, columns, side) * attn_->macs(side * side) +
         (others > 0 ? attn_->macs(others) : 0);
}

torch::Tensor AttentionBlock::step(const torch::Tensor& x, const nn::Rotation& rotation,
                                   std::vector<torch::Tensor>& state) {
  return apply(x, {},
               [&](const nn::DeferredNorm& normed, const nn::Epilogue& epilogue, const torch::Tensor&) {
                 const auto [q, k, v] = attn_->project(normed);
                 const torch::Tensor key = nn::rotate(k, rotation);
                 if (state.empty())
                   state = {key, v};
                 else
                   state = {torch::cat({state[0], key}, 2), torch::cat({state[1], v}, 2)};
                 const torch::Tensor mixed = nn::attend(nn::rotate(q, rotation), state[0], state[1]);
                 return attn_->output(nn::AttentionImpl::merge(mixed), epilogue);
               });
}

}  // namespace tessera::models
