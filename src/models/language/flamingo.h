// Flamingo (Alayrac et al. 2022, "Flamingo: a visual language model for few-shot learning"), with the names
// of OpenFlamingo (Awadalla et al. 2023):
//
//   resampler: latents <- latents + attention(latents over [features, latents])
//              latents <- latents + FF(latents)
//   before every n-th block of the frozen language model:
//     x <- x + tanh(a) attention(x over the latents of the last image before each token)
//     x <- x + tanh(b) FF(x)
//
// Gates start at 0, so at first the language model's output is unchanged, bit by bit.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "models/base/encoder.h"
#include "models/language/language_model.h"

namespace tessera::models {

struct ResamplerConfig {
  int64_t dim = 1024, depth = 6, heads = 8, head_dim = 64, latents = 64, mlp_ratio = 4;
  int64_t frames = 0;  // number of learned vectors for frames; 0 = none
};
// Maps features of frames [batch, frames, tokens, dim] to [batch, latents, dim]. Parameters latents,
// frame_embs, layers.N.0.{norm_media, norm_latents, to_q, to_kv, to_out}, layers.N.1.{0, 1, 3}, norm.
class ResamplerImpl : public torch::nn::Module {
 public:
  explicit ResamplerImpl(const ResamplerConfig& config);
  torch::Tensor forward(const torch::Tensor& features);

 private:
  struct Layer {
    nn::LayerNorm norm_media{nullptr}, norm_latents{nullptr}, ff_norm{nullptr};
    nn::Linear to_q{nullptr}, to_kv{nullptr}, to_out{nullptr}, fc1{nullptr}, fc2{nullptr};
  };
  ResamplerConfig config_;
  torch::Tensor latents_, frame_embs_;
  std::vector<Layer> layers_;
  nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(Resampler);

struct GatedConfig {
  int64_t dim = 2048, media_dim = 1024, heads = 8, head_dim = 64, mlp_ratio = 4;
};
// Parameters attn.{norm, to_q, to_kv, to_out}, attn_gate, ff.{0, 1, 3}, ff_gate.
class GatedCrossAttentionImpl : public torch::nn::Module {
 public:
  explicit GatedCrossAttentionImpl(const GatedConfig& config);
  // x [batch, tokens, dim], media [batch, images, latents, media_dim]. `image` int64 [batch, tokens]: the
  // number of images at or before each token. A token sees the last of them, or none if that is 0.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& media, const torch::Tensor& image);

 private:
  GatedConfig config_;
  nn::LayerNorm norm_{nullptr}, ff_norm_{nullptr};
  nn::Linear to_q_{nullptr}, to_kv_{nullptr}, to_out_{nullptr}, fc1_{nullptr}, fc2_{nullptr};
  torch::Tensor attn_gate_, ff_gate_;
};
TORCH_MODULE(GatedCrossAttention);

struct FlamingoConfig {
  ResamplerConfig resampler;
  GatedConfig gated;
  int64_t every = 4;        // a gated layer before block i if (i + 1) % every == 0
  int64_t media_token = 0;  // "<image>"
};

class Flamingo : public torch::nn::Module {
 public:
  // `vision` may be null: the caller then replaces media() by resample().
  Flamingo(const FlamingoConfig& config, std::shared_ptr<Backbone> vision,
           std::shared_ptr<LanguageModel> language);

  // Maps images [batch, images, frames, 3, height, width] to latents [batch, images, latents, dim]. No
  // gradient reaches the tower.
  torch::Tensor media(const torch::Tensor& images);
  // As media(), from the tower's tokens [batch, images, frames, tokens, width].
  torch::Tensor resample(const torch::Tensor& tokens);
  // Returns logits [batch, tokens, vocabulary]; mask as in TextInput.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& mask, const torch::Tensor& media);
  // For generate(): `media` are the images in each row of the prompt.
  NextTokenModel next_token_model(const torch::Tensor& prompt, const torch::Tensor& media, int64_t beams);
  // As next_token_model(), with the latents of all images in the prompt, [images, latents, dim] in order over
  // its rows; undefined if the prompt has none.
  NextTokenModel begin(const torch::Tensor& prompt, const torch::Tensor& latents, int64_t beams);
  LanguageModel& language() { return *language_; }

 private:
  FlamingoConfig config_;
  std::shared_ptr<Backbone> vision_;              // "vision_encoder"
  Resampler perceiver_{nullptr};                  // "perceiver"
  std::shared_ptr<LanguageModel> language_;       // "lang_encoder"
  std::map<int64_t, GatedCrossAttention> gated_;  // "gated_cross_attn_layers.N", keyed by the block after it
};

}  // namespace tessera::models
