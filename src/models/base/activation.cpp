#include "models/base/activation.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace tessera::models {

torch::Tensor activate(const torch::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return torch::gelu(x);
    case Activation::gelu_tanh:
      return torch::gelu(x, "tanh");
    case Activation::quick_gelu:
      return x * torch::sigmoid(1.702 * x);
    case Activation::relu:
      return torch::relu(x);
    case Activation::silu:
      return torch::silu(x);
    case Activation::published:
      break;
  }
  fail("Activation::published must be resolved before it is applied");
}

Activation published_activation(const std::string& name, const std::string& where) {
  constexpr std::array<std::pair<const char*, Activation>, 9> kNames = {
      {{"gelu", Activation::gelu},
       {"gelu_new", Activation::gelu_tanh},
       {"gelu_pytorch_tanh", Activation::gelu_tanh},
       {"gelu_fast", Activation::gelu_tanh},
       {"gelu_accurate", Activation::gelu_tanh},
       {"quick_gelu", Activation::quick_gelu},
       {"relu", Activation::relu},
       {"silu", Activation::silu},
       {"swish", Activation::silu}}};
  for (const auto& [published, activation] : kNames)
    if (name == published) return activation;
  fail_usage(where, " is \"", printable(name),
             "\", must be gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, relu, silu or swish");
}

}  // namespace tessera::models
