#include "models/language/projection.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "nn/init.h"

namespace tessera::models {

ProjectionImpl::ProjectionImpl(int64_t in, int64_t out, bool with_bias, bool stored_in_out)
    : LinearImpl(in, out, with_bias), stored_in_out_(stored_in_out) {
  if (stored_in_out_) weight.set_data(nn::zeros({in, out}));
}

torch::Tensor ProjectionImpl::forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue) const {
  if (!stored_in_out_ && !lora_a_) return LinearImpl::forward(x, epilogue);
  const torch::Tensor plain = x;
  torch::Tensor y;
  if (magnitude_.defined()) {
    y = at::linear(plain, matrix()) + lora_b_->forward(lora_a_->forward(plain)) * scale_;
    y = y * length_ratio(changed_weight());
    if (bias.defined()) y = y + bias;
  } else {
    y = stored_in_out_ ? at::linear(plain, matrix(), bias) : LinearImpl::forward(plain);
    if (lora_a_) y = y + lora_b_->forward(lora_a_->forward(plain)) * scale_;
  }
  return epilogue.residual.defined() ? y + epilogue.residual : y;
}

void ProjectionImpl::adapt(const LowRank& change) {
  const int64_t in = weight.size(stored_in_out_ ? 0 : 1), out = weight.size(stored_in_out_ ? 1 : 0);
  lora_a_ = register_module("lora_A", nn::Linear(in, change.rank, false));
  lora_b_ = register_module("lora_B", nn::Linear(change.rank, out, false));
  lora_a_->to(weight.device(), weight.scalar_type());
  lora_b_->to(weight.device(), weight.scalar_type());
  const auto rank = static_cast<double>(change.rank);
  scale_ = change.alpha / (change.by_root ? std::sqrt(rank) : rank);
  if (change.with_magnitude)
    magnitude_ =
        register_parameter("lora_magnitude_vector", weight.detach().norm(2, stored_in_out_ ? 0 : 1).clone());
}

torch::Tensor ProjectionImpl::changed_weight() const {
  const torch::Tensor change = lora_b_->weight.mm(lora_a_->weight) * scale_;
  return weight + (stored_in_out_ ? change.t() : change);
}

torch::Tensor ProjectionImpl::length_ratio(const torch::Tensor& changed) const {
  return magnitude_ / changed.detach().norm(2, stored_in_out_ ? 0 : 1);
}

torch::Tensor ProjectionImpl::merged_weight() const {
  if (!lora_a_) return weight;
  const torch::Tensor changed = changed_weight();
  if (!magnitude_.defined()) return changed;
  const torch::Tensor ratio = length_ratio(changed);
  return changed * (stored_in_out_ ? ratio : ratio.unsqueeze(1));
}

void ProjectionImpl::merge() {
  if (!lora_a_) return;
  const torch::NoGradGuard no_grad;
  weight.copy_(merged_weight());
  unregister_module("lora_A");
  unregister_module("lora_B");
  lora_a_ = lora_b_ = nullptr;
  if (magnitude_.defined()) parameters_.erase("lora_magnitude_vector");
  magnitude_.reset();
}

int64_t adapt_layers(torch::nn::Module& module,
                     const std::function<std::optional<LowRank>(const std::string& name)>& choose) {
  for (torch::Tensor& parameter : module.parameters()) parameter.requires_grad_(false);
  int64_t count = 0;
  for (const auto& entry : module.named_modules(std::string(), /*include_self=*/false)) {
    auto* const projection = dynamic_cast<ProjectionImpl*>(entry.value().get());
    if (!projection || projection->adapted()) continue;
    if (const std::optional<LowRank> change = choose(entry.key())) projection->adapt(*change), ++count;
  }
  return count;
}

bool ends_with_name(const std::string& name, const std::string& target) {
  return name == target || name.ends_with("." + target);
}

void fail_no_layer(const torch::nn::Module& module, const std::string& target) {
  std::vector<std::string> names;
  for (const auto& entry : module.named_modules(std::string(), /*include_self=*/false)) {
    const std::string last = entry.key().substr(entry.key().rfind('.') + 1);
    if (dynamic_cast<const ProjectionImpl*>(entry.value().get()) &&
        std::find(names.begin(), names.end(), last) == names.end())
      names.push_back(last);
  }
  fail_usage("LoRA: no linear layer is called '", target, "'", did_you_mean(target, names), "; there are ",
             join(names, ", "));
}

int64_t add_lora(torch::nn::Module& module, const LoraConfig& config) {
  std::set<std::string> found;
  const LowRank change{.rank = config.rank, .alpha = config.alpha, .by_root = config.by_root};
  const int64_t count = adapt_layers(module, [&](const std::string& name) {
    std::optional<LowRank> chosen;
    for (const std::string& target : config.targets)
      if (ends_with_name(name, target)) found.insert(target), chosen = change;
    return chosen;
  });
  for (const std::string& target : config.targets)
    if (!found.contains(target)) fail_no_layer(module, target);
  return count;
}

}  // namespace tessera::models
