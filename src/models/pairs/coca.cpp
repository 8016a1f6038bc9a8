#include "models/pairs/coca.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {

CrossBlock::CrossBlock(int64_t dim, int64_t context_width, int64_t heads, int64_t hidden, nn::MlpForm mlp,
                       double norm_eps) {
  const auto norm = [&](const char* name, int64_t width) {
    return register_module(name, nn::LayerNorm(width, nn::LayerNormOptions{.eps = norm_eps}));
  };
  norm1_ = norm("norm1", dim);
  norm_context_ = norm("norm_context", context_width);
  attn_ = register_module("attn", nn::CrossAttention(dim, context_width, heads));
  norm2_ = norm("norm2", dim);
  mlp_ = register_module("mlp", nn::AnyMlp(mlp, dim, hidden));
}

torch::Tensor CrossBlock::forward(const torch::Tensor& x, const torch::Tensor& context,
                                  const nn::AttentionExtras& extras) {
  const torch::Tensor y = attn_->forward(norm1_->before_linear(x), norm_context_->before_linear(context),
                                         extras, {.residual = x});
  return mlp_->forward(norm2_->before_linear(y), {.residual = y});
}

Coca::Coca(const CocaConfig& config) : config_(config) {
  TextTowerConfig& text = config_.text;
  text.pool = TextPool::class_token;
  text.embed_dim = config.embed_dim;
  const double eps = text.norm_eps;
  const int64_t hidden = config.decoder_hidden > 0 ? config.decoder_hidden : text.hidden_width();
  check(config.queries >= 2, "CoCa's pooler has ", config.queries,
        " queries, must be at least 2: one for the image's vector, the others for the decoder");
  logit_scale = register_parameter("logit_scale", nn::ones({}).mul_(std::log(config.first_scale)));
  auto visual = register_module("visual", std::make_shared<torch::nn::Module>());
  attn_pool_ = visual->register_module(
      "attn_pool",
      nn::AttentionPooler(config.queries, config.embed_dim, config.image_width, config.pooler_heads, eps));
  ln_post_ =
      visual->register_module("ln_post", nn::LayerNorm(config.embed_dim, nn::LayerNormOptions{.eps = eps}));
  auto head = visual->register_module("head", std::make_shared<torch::nn::Module>());
  proj_ = head->register_module("proj", nn::Linear(config.embed_dim, config.embed_dim, false));
  text_ = register_module("text", std::make_shared<TextTower>(text));
  auto decoder = register_module("text_decoder", std::make_shared<torch::nn::Module>());
  blocks_ = decoder->register_module("blocks", torch::nn::ModuleList());
  cross_blocks_ = decoder->register_module("cross_blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.decoder_depth; ++i) {
    blocks_->push_back(
        std::make_shared<TextBlock>(text.dim, config.decoder_heads, hidden, form_of(text.mlp), eps));
    cross_blocks_->push_back(std::make_shared<CrossBlock>(text.dim, config.embed_dim, config.decoder_heads,
                                                          hidden, form_of(text.mlp), eps));
  }
  decoder_norm_ =
      decoder->register_module("ln_final", nn::LayerNorm(text.dim, nn::LayerNormOptions{.eps = eps}));
  vocabulary_ = decoder->register_module("text_projection", nn::Linear(text.dim, text.vocab_size, false));
}

void Coca::initialise(uint64_t seed) {
  text_->initialise(seed);
  const auto inverse_root = [](int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); };
  nn::initialise(
      *this, seed, [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
        if (name.starts_with("text.")) return;
        if (name == "visual.attn_pool.query")
          fill.normal(1);
        else if (name.starts_with("text_decoder.") && name.find("blocks.") != std::string::npos)
          first_values_of_text_block(name, parameter, fill, config_.text.dim, config_.decoder_depth);
        else if (name == "text_decoder.text_projection.weight")
          fill.normal(inverse_root(config_.text.dim));
        else if (parameter.dim() == 2)
          fill.normal(inverse_root(parameter.size(1)));
      });
}

Coca::Side Coca::image(const torch::Tensor& tokens, const Context& context) {
  const torch::Tensor pooled =
      ln_post_(attn_pool_->forward(tokens, {.taps = context.taps, .name = "visual.attn_pool"}));
  return {proj_->forward(pooled.select(1, 0)), pooled.slice(1, 1)};
}

Coca::Side Coca::text(const torch::Tensor& ids, const Context& context) {
  const TextTower::Coca read = text_->read_coca(ids, context);
  return {text_->project(read.pooled), read.tokens};
}

torch::Tensor Coca::decode(const torch::Tensor& image_tokens, const torch::Tensor& text_tokens,
                           const Context& context) {
  torch::Tensor x = text_tokens;
  for (size_t i = 0; i < blocks_->size(); ++i) {
    const auto block = std::dynamic_pointer_cast<TextBlock>(blocks_->ptr(i));
    const auto cross = std::dynamic_pointer_cast<CrossBlock>(cross_blocks_->ptr(i));
    const auto body = [block, cross, image_tokens, taps = context.taps, i](const torch::Tensor& in) {
      const std::string number = std::to_string(i);
      const torch::Tensor own =
          block->forward(in, {.causal = true, .taps = taps, .name = "text_decoder.blocks." + number});
      return cross->forward(own, image_tokens, {.taps = taps, .name = "text_decoder.cross_blocks." + number});
    };
    x = nn::run_unit(x, {.body = body,
                         .parameters = [&] { return unit(i); },
                         .recompute = checkpointing && is_training() && !context.taps,
                         .reads = {image_tokens}});
  }
  return vocabulary_->forward(decoder_norm_->before_linear(x));
}

std::vector<torch::Tensor> Coca::unit(size_t index) const {
  std::vector<torch::Tensor> both = blocks_->ptr(index)->parameters();
  for (const torch::Tensor& one : cross_blocks_->ptr(index)->parameters()) both.push_back(one);
  return both;
}

std::vector<std::vector<torch::Tensor>> Coca::units() const {
  std::vector<std::vector<torch::Tensor>> all;
  for (size_t i = 0; i < blocks_->size(); ++i) all.push_back(unit(i));
  return all;
}

torch::Tensor Coca::attention(const torch::Tensor& image_tokens, const torch::Tensor& ids) {
  const std::string pool = "visual.attn_pool.attention",
                    last = "text_decoder.cross_blocks." + std::to_string(blocks_->size() - 1) + ".attention";
  Taps taps;
  taps.wanted = [&](const std::string& name) { return name == pool || name == last; };
  Context context;
  context.taps = &taps;
  decode(image(image_tokens, context).tokens, text(ids).tokens, context);
  const torch::Tensor words = taps.kept.at(last)[0].mean(0), queries = taps.kept.at(pool)[0].mean(0);
  return words.mm(queries.slice(0, 1));  // the first query is the image's vector
}

void Coca::bound_scale() {
  const torch::NoGradGuard no_grad;
  logit_scale.clamp_(0, std::log(100.0));
}

int64_t Coca::macs(int64_t image_tokens) const {
  const int64_t tokens = config_.text.context_length;
  int64_t total =
      attn_pool_->macs(image_tokens) + proj_->macs() + text_->macs() + tokens * vocabulary_->macs();
  for (size_t i = 0; i < blocks_->size(); ++i)
    total += std::dynamic_pointer_cast<TextBlock>(blocks_->ptr(i))->macs(tokens) +
             std::dynamic_pointer_cast<CrossBlock>(cross_blocks_->ptr(i))->macs(tokens, config_.queries - 1);
  return total;
}

}  // namespace tessera::models
