#include "models/headed.h"

namespace tessera::models {

torch::Tensor HeadedBackbone::forward(const torch::Tensor& images, const Context& context) {
  const torch::Tensor vector = embed(images, context);
  if (!head_) return vector;
  return head_(head_norm_ ? head_norm_(vector) : vector);
}

void HeadedBackbone::reset_head(int64_t classes) {
  if (head_norm_) unregister_module("head_norm");
  if (head_) unregister_module("head");
  head_norm_ = nullptr, head_ = nullptr;
  make_head(classes);
  nn::initialise(*this, seed_, [this](const auto& name, const auto& parameter, const nn::Filler& fill) {
    if (name.starts_with("head")) first_values(name, parameter, fill);
  });
}

void HeadedBackbone::initialise(uint64_t seed) {
  seed_ = seed;
  nn::initialise(*this, seed, [this](const auto& name, const auto& parameter, const nn::Filler& fill) {
    first_values(name, parameter, fill);
  });
}

void HeadedBackbone::make_head(int64_t classes) {
  if (classes == 0) return;
  if (head_batch_norm_) head_norm_ = register_module("head_norm", nn::BatchNorm(embed_width()));
  head_ = register_module("head", nn::Linear(embed_width(), classes));
}

}  // namespace tessera::models
