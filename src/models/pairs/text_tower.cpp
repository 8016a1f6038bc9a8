#include "models/pairs/text_tower.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "models/base/family.h"
#include "nn/units.h"
#include "ops/inference.h"

namespace tessera::models {

TextBlock::TextBlock(int64_t dim, int64_t heads, int64_t hidden, nn::MlpForm mlp, double norm_eps,
                     double init_values) {
  norm1_ = register_module("norm1", nn::LayerNorm(dim, nn::LayerNormOptions{.eps = norm_eps}));
  attn_ = register_module("attn", nn::Attention(dim, heads));
  norm2_ = register_module("norm2", nn::LayerNorm(dim, nn::LayerNormOptions{.eps = norm_eps}));
  mlp_ = register_module("mlp", nn::AnyMlp(mlp, dim, hidden));
  if (init_values <= 0) return;
  ls1_ = register_module("ls1", nn::LayerScale(dim, init_values));
  ls2_ = register_module("ls2", nn::LayerScale(dim, init_values));
}

torch::Tensor TextBlock::forward(const torch::Tensor& x, const nn::AttentionExtras& extras) {
  const auto added_to = [](const torch::Tensor& residual, const nn::LayerScale& scale) {
    return nn::Epilogue{.scale = scale ? scale->gamma : torch::Tensor(), .residual = residual};
  };
  const torch::Tensor y = attn_->forward(norm1_->before_linear(x), extras, added_to(x, ls1_));
  return mlp_->forward(norm2_->before_linear(y), added_to(y, ls2_));
}

TokenEmbedding::TokenEmbedding(int64_t entries, int64_t dim) {
  weight = register_parameter("weight", nn::zeros({entries, dim}));
}

torch::Tensor TokenEmbedding::forward(const torch::Tensor& ids) const {
  return at::embedding(weight, ids.to(torch::kInt64));
}

TextTower::TextTower(const TextTowerConfig& config) : config_(config) {
  check_width(config.dim, config.heads);
  token_embedding_ =
      register_module("token_embedding", std::make_shared<TokenEmbedding>(config.vocab_size, config.dim));
  const bool class_token = config.pool == TextPool::class_token;
  positional_embedding_ = register_parameter(
      "positional_embedding", nn::zeros({config.context_length + (class_token ? 1 : 0), config.dim}));
  if (class_token) cls_emb_ = register_parameter("cls_emb", nn::zeros({config.dim}));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.depth; ++i)
    blocks_->push_back(std::make_shared<TextBlock>(config.dim, config.heads, config.hidden_width(),
                                                   form_of(config.mlp), config.norm_eps, config.init_values));
  ln_final_ =
      register_module("ln_final", nn::LayerNorm(config.dim, nn::LayerNormOptions{.eps = config.norm_eps}));
  if (config.embed_dim > 0)
    text_projection_ =
        register_module("text_projection", nn::Linear(config.dim, config.embed_dim, config.projection_bias));
}

void first_values_of_text_block(const std::string& name, const torch::Tensor& parameter,
                                const nn::Filler& fill, int64_t dim, int64_t depth) {
  if (parameter.dim() != 2) return;
  const double width = 1 / std::sqrt(static_cast<double>(dim)),
               ends = 1 / std::sqrt(2.0 * static_cast<double>(depth));
  if (nn::ends_with(name, "mlp.fc1.weight"))
    fill.normal(width / std::sqrt(2.0));
  else if (nn::ends_with(name, "proj.weight") || nn::ends_with(name, "mlp.fc2.weight"))
    fill.normal(width * ends);
  else
    fill.normal(width);
}

void TextTower::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "token_embedding.weight")
                     fill.normal(0.02);
                   else if (name == "positional_embedding" || name == "cls_emb")
                     fill.normal(0.01);
                   else if (name == "text_projection.weight")
                     fill.normal(1 / std::sqrt(static_cast<double>(config_.dim)));
                   else
                     first_values_of_text_block(name, parameter, fill, config_.dim, config_.depth);
                 });
}

torch::Tensor TextTower::embedded(const torch::Tensor& ids) const {
  check(ids.dim() == 2 && ids.size(1) <= config_.context_length, "texts of ", ids.sizes(),
        " tokens, must be [batch, at most ", config_.context_length, "]");
  const torch::Tensor tokens = token_embedding_->forward(ids);
  if (!cls_emb_.defined()) return tokens + positional_embedding_.slice(0, 0, ids.size(1));
  const torch::Tensor all = torch::cat({tokens, cls_emb_.view({1, 1, -1}).expand({ids.size(0), -1, -1})}, 1);
  return all + positional_embedding_.slice(0, 0, ids.size(1) + 1);
}

torch::Tensor TextTower::run(torch::Tensor x, const nn::AttentionExtras& shared, const Context& context) {
  for (size_t i = 0; i < blocks_->size(); ++i) {
    nn::AttentionExtras extras = shared;
    extras.taps = context.taps;
    extras.name = "text.blocks." + std::to_string(i);
    const auto block = std::dynamic_pointer_cast<TextBlock>(blocks_->ptr(i));
    x = nn::run_unit(x,
                     {.body = [block, extras](const torch::Tensor& in) { return block->forward(in, extras); },
                      .parameters = [&] { return block->parameters(); },
                      .recompute = checkpointing && is_training() && !context.taps});
    tap(context.taps, extras.name, x);
  }
  return x;
}

namespace {

// Returns the mask added to the scores: -inf for keys that are not seen, [batch, 1, 1, keys].
torch::Tensor padding_bias(const torch::Tensor& seen, const torch::Tensor& like) {
  return torch::zeros(seen.sizes(), like.options().requires_grad(false))
      .masked_fill(~seen, -std::numeric_limits<float>::infinity())
      .view({seen.size(0), 1, 1, seen.size(1)});
}

}  // namespace

torch::Tensor TextTower::encode(const torch::Tensor& ids, const torch::Tensor& seen, const Context& context) {
  const torch::Tensor x = embedded(ids);
  nn::AttentionExtras extras{.causal = config_.causal};
  if (seen.defined()) extras.bias = padding_bias(seen, x);
  return ln_final_(run(x, extras, context));
}

torch::Tensor TextTower::read_places(const torch::Tensor& ids) const {
  switch (config_.pool) {
    case TextPool::largest:
      return ids.argmax(1);
    case TextPool::end_token:
      return ids.eq(config_.end_token).to(torch::kInt32).argmax(1);
    case TextPool::last:
      return torch::full({ids.size(0)}, ids.size(1) - 1, ids.options().dtype(torch::kInt64));
    case TextPool::first:
      return torch::zeros({ids.size(0)}, ids.options().dtype(torch::kInt64));
    case TextPool::class_token:
      break;
  }
  return torch::full({ids.size(0)}, ids.size(1), ids.options().dtype(torch::kInt64));
}

torch::Tensor TextTower::text_places(const torch::Tensor& ids) const {
  if (config_.pool == TextPool::last || config_.pool == TextPool::first) return ids.ne(config_.pad_token);
  const torch::Tensor places = torch::arange(ids.size(1), ids.options().dtype(torch::kInt64));
  return places.unsqueeze(0) <= read_places(ids).unsqueeze(1);
}

torch::Tensor TextTower::read(const torch::Tensor& tokens, const torch::Tensor& ids) const {
  const torch::Tensor index = read_places(ids).view({-1, 1, 1}).expand({-1, 1, tokens.size(2)});
  return project(tokens.gather(1, index).squeeze(1));
}

// A composed forward pass may be traced, so its length does not depend on the texts.
int64_t TextTower::length_read(const torch::Tensor& ids) const {
  if (!config_.causal || config_.pool == TextPool::last || config_.pool == TextPool::class_token ||
      ids.numel() == 0 || !ops::inference_settings().fused)
    return ids.size(1);
  return *read_places(ids).max().const_data_ptr<int64_t>() + 1;
}

torch::Tensor TextTower::forward(const torch::Tensor& ids, const Context& context) {
  if (config_.pool == TextPool::class_token) return project(read_coca(ids, context).pooled);
  const torch::Tensor places = read_places(ids);
  const torch::Tensor read = ids.is_cpu() ? read_part(ids, ids) : ids;
  const torch::Tensor last = run(embedded(read), {.causal = config_.causal}, context);
  const torch::Tensor index = places.view({-1, 1, 1}).expand({-1, 1, last.size(2)});
  return project(ln_final_(last.gather(1, index).squeeze(1)));
}

TextTower::Coca TextTower::read_coca(const torch::Tensor& ids, const Context& context) {
  check(cls_emb_.defined(), "this text tower has no class token");
  const torch::Tensor x = embedded(ids);
  const torch::Tensor first = torch::ones({ids.size(0), 1}, ids.options().dtype(torch::kBool));
  const torch::Tensor seen = torch::cat({first, ids.ne(config_.pad_token)}, 1);
  const torch::Tensor last = run(x, {.bias = padding_bias(seen, x), .causal = true}, context);
  return {ln_final_(last.select(1, ids.size(1))), last.slice(1, 0, ids.size(1))};
}

int64_t TextTower::macs() const {
  int64_t total = text_projection_ ? text_projection_->macs() : 0;
  for (const auto& block : *blocks_)
    total += std::dynamic_pointer_cast<TextBlock>(block)->macs(positional_embedding_.size(0));
  return total;
}

}  // namespace tessera::models
