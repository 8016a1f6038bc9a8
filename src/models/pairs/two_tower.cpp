#include "models/pairs/two_tower.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

constexpr double kLargestLogScale = 4.605170185988092;  // ln 100

}  // namespace

TwoTower::TwoTower(const TwoTowerConfig& config) : config_(config) {
  logit_scale = register_parameter("logit_scale", nn::ones({}).mul_(std::log(config.first_scale)));
  if (config.logit_bias) logit_bias = register_parameter("logit_bias", nn::ones({}).mul_(config.first_bias));
  auto visual = register_module("visual", std::make_shared<torch::nn::Module>());
  if (config.image_projection) {
    auto head = visual->register_module("head", std::make_shared<torch::nn::Module>());
    proj_ = head->register_module("proj", nn::Linear(config.image_width, config.embed_dim, false));
  } else if (config.image_width != config.embed_dim) {
    fail_usage("without a projection of images the space must be as wide as the image tower's vector, ",
               config.image_width, ", not ", config.embed_dim);
  }
  TextTowerConfig text = config.text;
  if (config.bert) text.dim = config.bert->dim;
  if (!config.text_projection && text.dim != config.embed_dim)
    fail_usage("without a projection of texts the space must be as wide as the text tower, ", text.dim,
               ", not ", config.embed_dim);
  text.embed_dim = config.text_projection ? config.embed_dim : 0;
  if (config.bert)
    text_ = register_module(
        "text", std::make_shared<BertTower>(BertTowerConfig{.bert = *config.bert,
                                                            .context_length = text.context_length,
                                                            .pad_token = text.pad_token,
                                                            .embed_dim = text.embed_dim,
                                                            .projection_bias = text.projection_bias}));
  else
    text_ = register_module("text", std::make_shared<TextTower>(text));
}

void TwoTower::initialise(uint64_t seed) {
  text_->initialise(seed);
  nn::initialise(*this, seed, [&](const std::string& name, const torch::Tensor&, const nn::Filler& fill) {
    if (name == "visual.head.proj.weight")
      fill.normal(1 / std::sqrt(static_cast<double>(config_.image_width)));
  });
}

void TwoTower::bound_scale() {
  const torch::NoGradGuard no_grad;
  logit_scale.clamp_(0, kLargestLogScale);
}

torch::Tensor normalised_rows(const torch::Tensor& x) {
  const torch::Tensor wide = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  return wide / wide.norm(2, {-1}, true).clamp_min(1e-12);
}

}  // namespace tessera::models
