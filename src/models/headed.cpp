#include "models/headed.h"

namespace tessera::models {

torch::Tensor HeadedBackbone::forward(const torch::Tensor& images, const Context& context) {
  const torch::Tensor vector = embed(images, context);
  return head_ ? head_(vector) : vector;
}

void HeadedBackbone::reset_head(int64_t classes) {
  if (head_) unregister_module("head");
  head_ = nullptr;
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
  if (classes > 0) head_ = register_module("head", nn::Linear(embed_width(), classes));
}

}  // namespace tessera::models
