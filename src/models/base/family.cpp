#include "models/base/family.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "nn/drop_path.h"

namespace tessera::models {

Extent extent_of(const Value& setting, const char* name) {
  Extent extent;
  if (setting.is_int()) {
    extent = {setting.as_int(), setting.as_int()};
  } else if (setting.is_array() && setting.as_array().size() == 2 && setting.as_array()[0].is_int() &&
             setting.as_array()[1].is_int()) {
    extent = {setting.as_array()[0].as_int(), setting.as_array()[1].as_int()};
  } else {
    fail_usage("model.", name, " must be a number of pixels or [height, width]");
  }
  if (extent.height < 1 || extent.width < 1 || extent.height > 65536 || extent.width > 65536)
    fail_usage("model.", name, " is ", extent.height, " x ", extent.width, ", both sides must be 1 to 65536");
  return extent;
}

void check_grid(const Value& image_size, int64_t patch_size) {
  const Extent image = extent_of(image_size, "image_size");
  if (patch_size < 1 || image.height % patch_size != 0 || image.width % patch_size != 0)
    fail_usage("model.image_size ", image.height, " x ", image.width,
               " must be a multiple of model.patch_size ", patch_size);
  check_tokens(image.height / patch_size, image.width / patch_size, 1);
}

void check_tokens(int64_t rows, int64_t columns, int64_t dim) {
  constexpr int64_t kMostTokens = int64_t{1} << 20, kMostChannels = int64_t{1} << 28;
  if (rows > kMostTokens / columns)
    fail_usage("model.image_size makes more than ", kMostTokens, " tokens: ", rows, " x ", columns);
  if (rows * columns > kMostChannels / dim)
    fail_usage("model.image_size makes more than ", kMostChannels, " numbers in tokens of ", dim,
               " channels: ", rows, " x ", columns, " of them");
}

void check_width(int64_t dim, int64_t heads) {
  if (dim % heads != 0) fail_usage("model.dim ", dim, " must be a positive multiple of model.heads ", heads);
}

std::vector<double> DropPathSettings::drop_path_rates(int64_t depth) const {
  return nn::drop_path_rates(drop_path, depth, drop_path_decay);
}

Norm register_norm(torch::nn::Module& owner, const char* name, NormKind kind, int64_t width, double eps) {
  Norm norm;
  if (kind == NormKind::rms)
    norm.rms = owner.register_module(name, nn::RmsNorm(width, eps));
  else
    norm.layer = owner.register_module(name, nn::LayerNorm(width, nn::LayerNormOptions{.eps = eps}));
  return norm;
}

std::string lacks_ability(const std::string& who, const std::string& ability, const std::string& family,
                          const std::function<bool(Backbone&)>& able) {
  std::vector<std::string> others;
  for (const Family& other : families()) {
    const auto model = meta_backbone(resolve_model(other.name));
    // A task without a condition cannot use a model that needs one.
    if (model->condition_width() == 0 && able(*model)) others.push_back(other.name);
  }
  return text(who, " needs a model that ", ability, "; ", family, " cannot; ",
              others.empty() ? "no family can" : "these can: " + join(others, ", "));
}

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
