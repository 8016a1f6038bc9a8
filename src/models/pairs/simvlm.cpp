#include "models/pairs/simvlm.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

// A block of the decoder: attention within the text, attention to the encoder's output, an MLP.
class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const SimVlmConfig& config) {
    const auto norm = [&](const char* name) {
      return register_module(name, nn::LayerNorm(config.dim, nn::LayerNormOptions{.eps = config.norm_eps}));
    };
    norm1_ = norm("norm1");
    attn_ = register_module("attn", nn::Attention(config.dim, config.heads));
    norm_cross_ = norm("norm_cross");
    cross_ = register_module("cross", nn::CrossAttention(config.dim, config.dim, config.heads));
    norm2_ = norm("norm2");
    mlp_ = register_module("mlp", nn::Mlp(config.dim, config.hidden_width()));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& read, const nn::AttentionExtras& own,
                        const nn::AttentionExtras& across) {
    const torch::Tensor y = attn_->forward(norm1_->before_linear(x), own, {.residual = x});
    const torch::Tensor z = cross_->forward(norm_cross_->before_linear(y), read, across, {.residual = y});
    return mlp_->forward(norm2_->before_linear(z), {.residual = z});
  }
  int64_t macs(int64_t tokens, int64_t keys) const {
    return attn_->macs(tokens) + cross_->macs(tokens, keys) + tokens * mlp_->macs();
  }

 private:
  nn::LayerNorm norm1_{nullptr}, norm_cross_{nullptr}, norm2_{nullptr};
  nn::Attention attn_{nullptr};
  nn::CrossAttention cross_{nullptr};
  nn::Mlp mlp_{nullptr};
};

// Returns the mask added to the scores, [batch, 1, queries, keys]: 0 where `seen` (bool [batch, queries or 1,
// keys]) is true, else -inf.
torch::Tensor prefix_bias(const torch::Tensor& seen, const torch::Tensor& like) {
  return torch::zeros(seen.sizes(), like.options().requires_grad(false))
      .masked_fill(~seen, -std::numeric_limits<float>::infinity())
      .unsqueeze(1);
}

torch::Tensor column(const torch::Tensor& numbers) { return numbers.view({-1, 1, 1}); }

}  // namespace

SimVlm::SimVlm(const SimVlmConfig& config) : config_(config) {
  const auto norm = [&](const char* name) {
    return register_module(name, nn::LayerNorm(config.dim, nn::LayerNormOptions{.eps = config.norm_eps}));
  };
  proj_ = register_module("proj", nn::Linear(config.image_width, config.dim));
  image_positions_ = register_parameter("image_pos", nn::zeros({1, config.image_tokens, config.dim}));
  text_positions_ = register_parameter("text_pos", nn::zeros({1, config.context_length, config.dim}));
  token_ = register_module("token", std::make_shared<TokenEmbedding>(config.vocab_size, config.dim));
  layers_ = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.depth; ++i)
    layers_->push_back(std::make_shared<TextBlock>(config.dim, config.heads, config.hidden_width(),
                                                   nn::MlpForm::gelu, config.norm_eps));
  norm_ = norm("norm");
  if (config.decoder_depth == 0) return;
  decoder_ = register_module("decoder", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.decoder_depth; ++i)
    decoder_->push_back(std::make_shared<DecoderBlock>(config));
  decoder_norm_ = norm("decoder_norm");
}

void SimVlm::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "token.weight" || name == "image_pos" || name == "text_pos")
                     fill.normal(0.02);
                   else if (name == "proj.weight")
                     fill.normal(1 / std::sqrt(static_cast<double>(config_.image_width)));
                   else
                     first_values_of_text_block(name, parameter, fill, config_.dim,
                                                config_.depth + config_.decoder_depth);
                 });
}

torch::Tensor SimVlm::forward(const torch::Tensor& image, const torch::Tensor& ids,
                              const torch::Tensor& prefix, const torch::Tensor& valid,
                              const Context& context) {
  check(ids.dim() == 2 && ids.size(1) <= config_.context_length, "texts of ", ids.sizes(),
        " tokens, must be [batch, at most ", config_.context_length, "]");
  check(image.dim() == 3 && image.size(1) == config_.image_tokens && image.size(2) == config_.image_width,
        "image tokens ", image.sizes(), ", must be [batch, ", config_.image_tokens, ", ", config_.image_width,
        "]");
  const torch::Tensor picture = proj_->forward(image) + image_positions_;
  const torch::Tensor text = token_->forward(ids) + text_positions_.slice(1, 0, ids.size(1));
  const torch::Tensor last = decoder_ ? encoder_decoder(picture, text, prefix, valid, context)
                                      : decoder_only(picture, text, prefix, valid, context);
  return last.matmul(token_->weight.t().to(last.scalar_type()));
}

torch::Tensor SimVlm::decoder_only(const torch::Tensor& image, const torch::Tensor& text,
                                   const torch::Tensor& prefix, const torch::Tensor& valid,
                                   const Context& context) {
  torch::Tensor x = torch::cat({image, text}, 1);
  const int64_t images = image.size(1), tokens = x.size(1);
  const torch::Tensor place = torch::arange(tokens, prefix.options());
  const torch::Tensor key = place.view({1, 1, -1}), query = place.view({1, -1, 1});
  const torch::Tensor seen =
      key.lt(column(prefix) + images).logical_or(key.le(query)).logical_and(key.lt(column(valid) + images));
  const torch::Tensor bias = prefix_bias(seen, x);
  return norm_(through_layers(x, bias, context).slice(1, images));
}

torch::Tensor SimVlm::through_layers(torch::Tensor x, const torch::Tensor& bias, const Context& context) {
  for (size_t i = 0; i < layers_->size(); ++i) {
    const auto layer = std::dynamic_pointer_cast<TextBlock>(layers_->ptr(i));
    const auto body = [layer, bias, taps = context.taps, i](const torch::Tensor& in) {
      return layer->forward(in, {.bias = bias, .taps = taps, .name = "layers." + std::to_string(i)});
    };
    x = nn::run_unit(x, {.body = body,
                         .parameters = [&] { return layer->parameters(); },
                         .recompute = checkpointing && is_training() && !context.taps});
  }
  return x;
}

std::vector<std::vector<torch::Tensor>> SimVlm::units() const {
  std::vector<std::vector<torch::Tensor>> all = nn::parameters_of_each(*layers_);
  if (decoder_)
    for (auto& unit : nn::parameters_of_each(*decoder_)) all.push_back(std::move(unit));
  return all;
}

torch::Tensor SimVlm::encoder_decoder(const torch::Tensor& image, const torch::Tensor& text,
                                      const torch::Tensor& prefix, const torch::Tensor& valid,
                                      const Context& context) {
  const int64_t images = image.size(1), tokens = text.size(1);
  torch::Tensor read = torch::cat({image, text}, 1);
  const torch::Tensor all = torch::arange(images + tokens, prefix.options()).view({1, 1, -1});
  const torch::Tensor known = prefix_bias(all.lt(column(prefix) + images), read);
  read = norm_(through_layers(read, known, context));
  const torch::Tensor place = torch::arange(tokens, prefix.options());
  const torch::Tensor key = place.view({1, 1, -1}), query = place.view({1, -1, 1});
  const torch::Tensor before =
      key.le(query).logical_and(key.ge(column(prefix) - 1)).logical_and(key.lt(column(valid)));
  const torch::Tensor own = prefix_bias(before.logical_or(key.eq(query)), text);
  torch::Tensor x = text;
  for (size_t i = 0; i < decoder_->size(); ++i) {
    const auto block = std::dynamic_pointer_cast<DecoderBlock>(decoder_->ptr(i));
    const auto body = [block, read, own, known, taps = context.taps, i](const torch::Tensor& in) {
      const std::string name = "decoder." + std::to_string(i);
      return block->forward(in, read, {.bias = own, .taps = taps, .name = name},
                            {.bias = known, .taps = taps, .name = name + ".cross"});
    };
    x = nn::run_unit(x, {.body = body,
                         .parameters = [&] { return block->parameters(); },
                         .recompute = checkpointing && is_training() && !context.taps,
                         .reads = {read}});
  }
  return decoder_norm_(x);
}

torch::Tensor SimVlm::attention(const torch::Tensor& image, const torch::Tensor& ids,
                                const torch::Tensor& prefix, const torch::Tensor& valid) {
  const std::string name = decoder_ ? text("decoder.", decoder_->size() - 1, ".cross.attention")
                                    : text("layers.", layers_->size() - 1, ".attention");
  Taps taps;
  taps.wanted = [&](const std::string& tapped) { return tapped == name; };
  Context context;
  context.taps = &taps;
  forward(image, ids, prefix, valid, context);
  const torch::Tensor all = taps.kept.at(name)[0].mean(0);
  const torch::Tensor words = decoder_ ? all : all.slice(0, config_.image_tokens);
  return words.slice(1, 0, config_.image_tokens);
}

int64_t SimVlm::macs() const {
  const int64_t text = config_.context_length, all = text + config_.image_tokens;
  int64_t total = config_.image_tokens * proj_->macs() + text * config_.vocab_size * config_.dim;
  for (const auto& layer : *layers_) total += std::dynamic_pointer_cast<TextBlock>(layer)->macs(all);
  if (decoder_)
    for (const auto& block : *decoder_)
      total += std::dynamic_pointer_cast<DecoderBlock>(block)->macs(text, all);
  return total;
}

PrefixLoss prefix_loss(const torch::Tensor& logits, const torch::Tensor& ids, const torch::Tensor& prefix,
                       const torch::Tensor& valid) {
  const int64_t tokens = ids.size(1);
  const torch::Tensor wide = logits.scalar_type() == torch::kFloat64 ? logits : logits.to(torch::kFloat32);
  const torch::Tensor place = torch::arange(tokens - 1, ids.options().dtype(torch::kInt64)).view({1, -1});
  const torch::Tensor counted = place.ge(prefix.view({-1, 1}) - 1)
                                    .logical_and(place.lt(valid.view({-1, 1}) - 1))
                                    .to(wide.scalar_type());
  const torch::Tensor next = ids.slice(1, 1).to(torch::kInt64);
  const torch::Tensor each =
      wide.slice(1, 0, tokens - 1).log_softmax(-1).gather(2, next.unsqueeze(2)).squeeze(2);
  return {-(each * counted).sum(), counted.sum()};
}

}  // namespace tessera::models
