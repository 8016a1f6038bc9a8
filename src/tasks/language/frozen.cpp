// Frozen (Tsimpoukelli et al. 2021, "Multimodal few-shot learning with frozen language models"): a tower
// learns to encode an image as a few tokens for a frozen language model.
//
//   prefix = W v(image), as `tokens` embeddings     v: the tower's read-out
//   loss   = - sum over the tokens of answers of log p(token | prefix in the place of <image>, all tokens before it)
//
// train.freeze = ["language_model.*"] freezes the language model; gradients pass through it.
#include "tasks/language/answering.h"

namespace tessera::tasks {
namespace {

struct FrozenTaskConfig : AnsweringConfig {
  int64_t tokens = 2;  // section 3.1: two work best

  template <class V>
  void visit(V& v) {
    visit_answering(v);
    v("tokens", tokens, between(1, 1024), "tokens that represent an image");
  }
};

class PrefixImages final : public ImageReader {
 public:
  PrefixImages(const FrozenTaskConfig& config, const models::ModelSpec&,
               std::shared_ptr<models::Backbone> tower)
      : tokens_(config.tokens), tower_(std::move(tower)) {
    map_ =
        register_module("map", nn::Linear(tower_->embed_width(), tokens_ * config.language.complete().dim));
    language_ = register_module("language_model", make_language_model(config));
  }

  void initialise(uint64_t seed) override {
    language_->initialise(seed);
    nn::initialise(*map_, seed,
                   [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
                     if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
                   });
  }
  const std::shared_ptr<models::LanguageModel>& language() const override { return language_; }
  int64_t per_image(int64_t) const override { return tokens_; }

  torch::Tensor features(const torch::Tensor& images, const models::Context& context) override {
    return map_->forward(tower_->embed(images, context)).unflatten(-1, {tokens_, -1});
  }

 private:
  int64_t tokens_;
  std::shared_ptr<models::Backbone> tower_;
  nn::Linear map_{nullptr};
  std::shared_ptr<models::LanguageModel> language_;
};

}  // namespace

TaskKind frozen_kind() {
  return answering_kind<PrefixImages, FrozenTaskConfig>(
      "frozen", "answers by a frozen language model, with an image prefix from a trained tower");
}

}  // namespace tessera::tasks
