#include "models/language/flamingo.h"

#include "core/error.h"
#include "models/language/llava.h"
#include "ops/attention.h"

namespace tessera::models {
namespace {

constexpr double kEps = 1e-5;
constexpr double kUnseen = -1e9;

torch::Tensor split_heads(const torch::Tensor& x, int64_t channels) {
  return x.unflatten(-1, {-1, channels}).transpose(1, 2).contiguous();
}

nn::LayerNorm norm_at(torch::nn::Module& root, const std::string& path, int64_t width) {
  nn::LayerNorm norm(width, nn::LayerNormOptions{.eps = kEps});
  register_at(root, path, norm.ptr());
  return norm;
}

nn::Linear linear_at(torch::nn::Module& root, const std::string& path, int64_t in, int64_t out) {
  nn::Linear layer(in, out, false);
  register_at(root, path, layer.ptr());
  return layer;
}

}  // namespace

ResamplerImpl::ResamplerImpl(const ResamplerConfig& config) : config_(config) {
  const int64_t dim = config.dim, inner = config.heads * config.head_dim;
  latents_ = register_parameter("latents", nn::zeros({config.latents, dim}));
  if (config.frames > 0) frame_embs_ = register_parameter("frame_embs", nn::zeros({config.frames, dim}));
  for (int64_t i = 0; i < config.depth; ++i) {
    const std::string attention = text("layers.", i, ".0."), feed = text("layers.", i, ".1.");
    layers_.push_back({.norm_media = norm_at(*this, attention + "norm_media", dim),
                       .norm_latents = norm_at(*this, attention + "norm_latents", dim),
                       .ff_norm = norm_at(*this, feed + "0", dim),
                       .to_q = linear_at(*this, attention + "to_q", dim, inner),
                       .to_kv = linear_at(*this, attention + "to_kv", dim, 2 * inner),
                       .to_out = linear_at(*this, attention + "to_out", inner, dim),
                       .fc1 = linear_at(*this, feed + "1", dim, config.mlp_ratio * dim),
                       .fc2 = linear_at(*this, feed + "3", config.mlp_ratio * dim, dim)});
  }
  norm_ = norm_at(*this, "norm", dim);
}

torch::Tensor ResamplerImpl::forward(const torch::Tensor& features) {
  torch::Tensor media = features;
  if (frame_embs_.defined()) {
    check(features.size(1) <= config_.frames, "a clip of ", features.size(1),
          " frames, the resampler has only ", config_.frames);
    media = media + frame_embs_.slice(0, 0, features.size(1)).unsqueeze(1);
  }
  media = media.flatten(1, 2);
  torch::Tensor latents = latents_.unsqueeze(0).expand({features.size(0), -1, -1});
  for (Layer& layer : layers_) {
    const torch::Tensor own = layer.norm_latents->forward(latents);
    const auto kv = layer.to_kv->forward(torch::cat({layer.norm_media->forward(media), own}, 1)).chunk(2, -1);
    const torch::Tensor read =
        ops::attention(split_heads(layer.to_q->forward(own), config_.head_dim),
                       split_heads(kv[0], config_.head_dim), split_heads(kv[1], config_.head_dim));
    latents = latents + layer.to_out->forward(read.transpose(1, 2).flatten(2));
    latents = latents + layer.fc2->forward(torch::gelu(layer.fc1->forward(layer.ff_norm->forward(latents))));
  }
  return norm_->forward(latents);
}

GatedCrossAttentionImpl::GatedCrossAttentionImpl(const GatedConfig& config) : config_(config) {
  const int64_t inner = config.heads * config.head_dim;
  norm_ = norm_at(*this, "attn.norm", config.dim);
  to_q_ = linear_at(*this, "attn.to_q", config.dim, inner);
  to_kv_ = linear_at(*this, "attn.to_kv", config.media_dim, 2 * inner);
  to_out_ = linear_at(*this, "attn.to_out", inner, config.dim);
  attn_gate_ = register_parameter("attn_gate", nn::zeros({1}));
  ff_norm_ = norm_at(*this, "ff.0", config.dim);
  fc1_ = linear_at(*this, "ff.1", config.dim, config.mlp_ratio * config.dim);
  fc2_ = linear_at(*this, "ff.3", config.mlp_ratio * config.dim, config.dim);
  ff_gate_ = register_parameter("ff_gate", nn::zeros({1}));
}

torch::Tensor GatedCrossAttentionImpl::forward(const torch::Tensor& x, const torch::Tensor& media,
                                               const torch::Tensor& image) {
  const int64_t latents = media.size(2);
  const auto kv = to_kv_->forward(media.flatten(1, 2)).chunk(2, -1);
  // Key j belongs to image j / latents, counted from 1 like `image`.
  const torch::Tensor of_key =
      torch::arange(1, media.size(1) + 1, image.options()).repeat_interleave(latents);
  const torch::Tensor seen = (image.unsqueeze(-1) == of_key).unsqueeze(1);  // [batch, 1, tokens, keys]
  const torch::Tensor bias =
      torch::zeros(seen.sizes(), x.options().requires_grad(false)).masked_fill_(~seen, kUnseen);
  torch::Tensor read = ops::attention(split_heads(to_q_->forward(norm_->forward(x)), config_.head_dim),
                                      split_heads(kv[0], config_.head_dim),
                                      split_heads(kv[1], config_.head_dim), {.bias = bias});
  // A token before the first image attends to none.
  read = read * (image > 0).view({image.size(0), 1, -1, 1}).to(x.scalar_type());
  const torch::Tensor y = x + to_out_->forward(read.transpose(1, 2).flatten(2)) * attn_gate_.tanh();
  return y + fc2_->forward(torch::gelu(fc1_->forward(ff_norm_->forward(y)))) * ff_gate_.tanh();
}

Flamingo::Flamingo(const FlamingoConfig& config, std::shared_ptr<Backbone> vision,
                   std::shared_ptr<LanguageModel> language)
    : config_(config), vision_(std::move(vision)), language_(std::move(language)) {
  if (vision_ && !dynamic_cast<TokenEncoder*>(vision_.get()))
    fail_usage("Flamingo reads tokens of an image tower with one grid throughout, such as vit");
  if (vision_) register_module("vision_encoder", vision_);
  perceiver_ = register_module("perceiver", Resampler(config.resampler));
  register_module("lang_encoder", language_);
  for (int64_t i = 0; i < language_->config().depth; ++i) {
    if ((i + 1) % config.every != 0) continue;
    GatedCrossAttention layer(config.gated);
    register_at(*this, text("gated_cross_attn_layers.", i), layer.ptr());
    gated_.emplace(i, layer);
  }
}

torch::Tensor Flamingo::media(const torch::Tensor& images) {
  check(vision_ != nullptr, "Flamingo has no image tower of its own: give resample() a tower's tokens");
  torch::Tensor tokens;
  {
    const torch::NoGradGuard no_grad;
    auto& tower = dynamic_cast<TokenEncoder&>(*vision_);
    const Encoded encoded = tower.encode(tower.tokenise(images.flatten(0, 2)));
    tokens = encoded.patches_of(encoded.tokens);
  }
  return resample(tokens.view({images.size(0), images.size(1), images.size(2), -1, tokens.size(2)}));
}

torch::Tensor Flamingo::resample(const torch::Tensor& tokens) {
  return perceiver_->forward(tokens.flatten(0, 1)).unflatten(0, {tokens.size(0), tokens.size(1)});
}

torch::Tensor Flamingo::forward(const torch::Tensor& ids, const torch::Tensor& mask,
                                const torch::Tensor& media) {
  const torch::Tensor image = (ids == config_.media_token).to(torch::kInt64).cumsum(1);
  return language_->forward(
      {.ids = ids, .mask = mask, .before_block = [&](int64_t block, const torch::Tensor& x) {
         const auto layer = gated_.find(block);
         return layer == gated_.end() ? x : layer->second->forward(x, media, image);
       }});
}

NextTokenModel Flamingo::next_token_model(const torch::Tensor& prompt, const torch::Tensor& media,
                                          int64_t beams) {
  struct State {
    torch::Tensor media, image, last;  // last: images before the tokens to come, [rows, 1]
  };
  const auto state = std::make_shared<State>();
  state->media = media.repeat_interleave(beams, 0);
  state->last = torch::zeros({prompt.size(0) * beams, 1}, prompt.options());
  LanguagePrompt settings;
  settings.before_block = [this, state](int64_t block, const torch::Tensor& x) {
    const auto layer = gated_.find(block);
    return layer == gated_.end() ? x : layer->second->forward(x, state->media, state->image);
  };
  const NextTokenModel inner = models::next_token_model(*language_, settings, beams);
  return {.next =
              [this, state, inner](const torch::Tensor& fresh) {
                state->image = state->last + (fresh == config_.media_token).to(torch::kInt64).cumsum(1);
                state->last = state->image.slice(1, -1);
                return inner.next(fresh);
              },
          .reorder =
              [state, inner](const torch::Tensor& rows) {
                state->last = state->last.index_select(0, rows);
                state->media = state->media.index_select(0, rows);
                inner.reorder(rows);
              }};
}

NextTokenModel Flamingo::begin(const torch::Tensor& prompt, const torch::Tensor& latents, int64_t beams) {
  const int64_t rows = prompt.size(0);
  const torch::Tensor media = latents.defined()
                                  ? latents.unflatten(0, {rows, latents.size(0) / rows})
                                  // No token sees these.
                                  : torch::zeros({rows, 1, config_.resampler.latents, config_.resampler.dim},
                                                 language_->embed(prompt.slice(1, 0, 1)).options());
  return next_token_model(prompt, media, beams);
}

}  // namespace tessera::models
