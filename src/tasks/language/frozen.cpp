#include "tasks/language/frozen.h"

namespace tessera::tasks {
namespace {

class PrefixImages final : public ImageReader {
 public:
  PrefixImages(const FrozenTaskConfig& config, std::shared_ptr<models::Backbone> tower)
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
  return {
      .name = "frozen",
      .summary = "answers by a frozen language model, with an image prefix from a trained tower",
      .resolve =
          [](const Value& settings) { return write_config(read_config<FrozenTaskConfig>(settings, "task")); },
      .keys = [] { return describe_config(FrozenTaskConfig(), "task"); },
      .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
      .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> {
        const auto config = read_config<FrozenTaskConfig>(setup.settings, "task");
        return make_answering_task(
            setup, config, "task frozen",
            [&](const AnsweringConfig& complete, const std::shared_ptr<models::Backbone>& tower) {
              FrozenTaskConfig all = config;
              static_cast<AnsweringConfig&>(all) = complete;
              return std::make_shared<PrefixImages>(all, tower);
            });
      },
      .path_keys = kAnsweringPaths};
}

}  // namespace tessera::tasks
