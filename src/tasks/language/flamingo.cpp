#include "tasks/language/flamingo.h"

#include "core/error.h"
#include "models/base/capability.h"
#include "models/language/flamingo.h"
#include "nn/host_values.h"
#include "ops/gpu.h"

namespace tessera::tasks {
namespace {

models::FlamingoConfig model_config(const FlamingoTaskConfig& config, int64_t image_width,
                                    int64_t image_token) {
  return {.resampler = {.dim = image_width,
                        .depth = config.resampler_depth,
                        .heads = config.resampler_heads,
                        .head_dim = config.head_dim,
                        .latents = config.latents,
                        .mlp_ratio = config.mlp_ratio},
          .gated = {.dim = config.language.complete().dim,
                    .media_dim = image_width,
                    .heads = config.cross_heads,
                    .head_dim = config.head_dim,
                    .mlp_ratio = config.mlp_ratio},
          .every = config.every,
          .media_token = image_token};
}

// Parameters "perceiver.*", "gated_cross_attn_layers.*" and "lang_encoder.*", as in OpenFlamingo.
class GatedImages final : public ImageReader {
 public:
  GatedImages(const FlamingoTaskConfig& config, const models::ModelSpec& spec,
              const std::shared_ptr<models::Backbone>& tower)
      : tower_(tower),
        encoder_(models::require<models::TokenEncoder>(*tower, spec.family, "task flamingo")),
        language_(make_language_model(config)) {
    if (config.every > config.language.depth)
      fail_usage("task.every = ", config.every,
                 ", the language model has task.language.depth = ", config.language.depth,
                 " blocks: it would have no gated layer");
    flamingo_ = std::make_shared<models::Flamingo>(
        model_config(config, encoder_.token_width(), config.language.vocabulary - 1), nullptr, language_);
    for (const auto& child : flamingo_->named_children()) register_module(child.key(), child.value());
  }

  // Linear layers and latents as in OpenFlamingo's code; gates start at 0.
  void initialise(uint64_t seed) override {
    nn::initialise(*flamingo_, seed,
                   [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                     if (name == "perceiver.latents")
                       fill.normal(1);
                     else if (parameter.dim() == 2)
                       fill.fan_in_uniform(parameter.size(1));
                   });
    language_->initialise(seed);
  }
  const std::shared_ptr<models::LanguageModel>& language() const override { return language_; }
  int64_t per_image(int64_t) const override { return 1; }

  bool among_words() const override { return false; }
  torch::Tensor features(const torch::Tensor& images, const models::Context& context) override {
    const models::Encoded encoded = encoder_.encode(encoder_.tokenise(images, context), context);
    const torch::Tensor tokens = encoded.patches_of(encoded.tokens).unsqueeze(1);  // one frame each
    return flamingo_->resample(tokens.unsqueeze(0)).squeeze(0);
  }
  models::NextTokenModel begin(const torch::Tensor& prompt, const torch::Tensor& features, int64_t,
                               int64_t beams) override {
    return flamingo_->begin(prompt, features, beams);
  }
  torch::Tensor logits(const torch::Tensor& images, const TextIds& ids, int64_t image_token,
                       const models::Context& context) override {
    // Document rows may have more image places than images; empty places are not computed, and no token sees
    // them.
    const int64_t places = images.size(0) / ids.host.size(0);
    const torch::Tensor named =
        (ids.host == image_token).sum(1, /*keepdim=*/true) > torch::arange(places, ids.host.options());
    const int64_t count = nn::count_true(named);
    const bool some = count > 0 && count < named.numel();
    const torch::Tensor present =
        some ? ops::sent_to(images.device(), named.flatten().nonzero().squeeze(1)) : torch::Tensor();
    const torch::Tensor shown = some ? images.index_select(0, present) : images;
    torch::Tensor media = features(shown, context);
    if (some) {
      std::vector<int64_t> shape = media.sizes().vec();
      shape[0] = images.size(0);
      media = torch::zeros(shape, media.options()).index_copy(0, present, media);
    }
    return flamingo_->forward(ids.there, {}, media.unflatten(0, {ids.host.size(0), places}));
  }

 private:
  std::shared_ptr<models::Backbone> tower_;
  models::TokenEncoder& encoder_;
  std::shared_ptr<models::LanguageModel> language_;
  std::shared_ptr<models::Flamingo> flamingo_;
};

}  // namespace

TaskKind flamingo_kind() {
  return answering_kind<GatedImages, FlamingoTaskConfig>(
      "flamingo", "answers by a frozen language model with gated attention to images");
}

}  // namespace tessera::tasks
