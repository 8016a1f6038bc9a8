// Activations of text models' feed-forward networks, by the names of published configurations.
#pragma once

#include "ops/torch.h"

#include <array>
#include <string>

#include "core/config.h"

namespace tessera::models {

enum class Activation { published, gelu, gelu_tanh, quick_gelu, relu, silu };  // published: what the kind has

// Of a tensor of any shape; not of `published`.
torch::Tensor activate(const torch::Tensor& x, Activation activation);

// "gelu_new" is gelu_tanh, and so on, as the transformers library calls them. A usage error that begins with `where` for a
// name that there is not.
Activation published_activation(const std::string& name, const std::string& where);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::Activation> {
  static constexpr std::array names = {"published", "gelu", "gelu_tanh", "quick_gelu", "relu", "silu"};
};
