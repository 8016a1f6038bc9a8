// Activations of text models' feed-forward networks, by the names of published configurations.
#pragma once

#include "ops/torch.h"

#include <array>
#include <string>

#include "core/config.h"

namespace tessera::models {

enum class Activation { published, gelu, gelu_tanh, quick_gelu, relu, silu };  // published: the kind's own

// Applies `activation` to a tensor of any shape; `published` is an error.
torch::Tensor activate(const torch::Tensor& x, Activation activation);

// Reads names of the transformers library, such as "gelu_new" for gelu_tanh. Throws a usage error that begins
// with `where` for an unknown name.
Activation published_activation(const std::string& name, const std::string& where);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::Activation> {
  static constexpr std::array names = {"published", "gelu", "gelu_tanh", "quick_gelu", "relu", "silu"};
};
