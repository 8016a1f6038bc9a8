// Visual instruction tuning (Liu et al. 2023, LLaVA): a language model answers questions about images.
//
//   H = projector(features of the image tower after an inner block)
//   loss = - sum over the tokens of answers of log p(token | H in the place of <image>, all tokens before it)
//
// The task covers both stages of LLaVA. The first freezes all except the projector (train.freeze =
// ["blocks.*", …, "language_model.*"]), the second only the tower. With LoRA the language model's own weights
// stay fixed.
#include "tasks/language/answering.h"

#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/language/llava.h"

namespace tessera::tasks {
namespace {

struct InstructConfig : AnsweringConfig {
  models::LlavaConfig images;

  template <class V>
  void visit(V& v) {
    visit_answering(v);
    v("images", images, "the projector's input from an image");
  }
};

class ProjectedImages final : public ImageReader {
 public:
  ProjectedImages(const InstructConfig& config, const models::ModelSpec& spec,
                  const std::shared_ptr<models::Backbone>& tower)
      : config_(config.images),
        patch_(spec.settings.find("patch_size") ? spec.settings.find("patch_size")->as_int() : 1),
        tower_(tower),
        encoder_(models::require<models::TokenEncoder>(*tower, spec.family, "task instruct")) {
    if (-config_.select_block > tower->block_count())
      fail_usage("task.images.select_block = ", config_.select_block, ", the tower has ",
                 tower->block_count(), " blocks");
    projector_ =
        register_module("multi_modal_projector",
                        models::Projector(encoder_.token_width(), config.language.complete().dim,
                                          models::ProjectorOptions{.layers = config_.projector_layers}));
    language_ = register_module("language_model", make_language_model(config));
  }

  void initialise(uint64_t seed) override {
    language_->initialise(seed);
    nn::initialise(*projector_, seed,
                   [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
                     if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
                   });
  }
  const std::shared_ptr<models::LanguageModel>& language() const override { return language_; }
  int64_t per_image(int64_t side) const override {
    return (side / patch_) * (side / patch_) + (config_.class_token ? 1 : 0);
  }

  torch::Tensor features(const torch::Tensor& images, const models::Context& context) override {
    models::Taps taps;
    const std::string name = text("blocks.", tower_->block_count() + config_.select_block);
    taps.wanted = [&](const std::string& tapped) { return tapped == name; };
    models::Context tapped = context;
    tapped.taps = &taps;
    const models::Tokens tokens = encoder_.tokenise(images, tapped);
    encoder_.encode(tokens, tapped);
    const torch::Tensor all = taps.kept.at(name);
    return projector_->forward(config_.class_token ? all : tokens.patches_of(all));
  }

 private:
  models::LlavaConfig config_;
  int64_t patch_;
  std::shared_ptr<models::Backbone> tower_;
  models::TokenEncoder& encoder_;
  models::Projector projector_{nullptr};
  std::shared_ptr<models::LanguageModel> language_;
};

}  // namespace

TaskKind instruct_kind() {
  return answering_kind<ProjectedImages, InstructConfig>(
      "instruct", "answers to questions about images, by a language model", "chat");
}

}  // namespace tessera::tasks
