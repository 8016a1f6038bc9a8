#include "models/projection.h"

#include <algorithm>
#include <cmath>
#include <map>

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
  torch::Tensor y = stored_in_out_ ? at::linear(plain, weight.t(), bias) : LinearImpl::forward(plain);
  if (lora_a_) y = y + lora_b_->forward(lora_a_->forward(plain)) * scale_;
  return epilogue.residual.defined() ? y + epilogue.residual : y;
}

void ProjectionImpl::adapt(int64_t rank, double alpha, bool by_root) {
  const int64_t in = weight.size(stored_in_out_ ? 0 : 1), out = weight.size(stored_in_out_ ? 1 : 0);
  lora_a_ = register_module("lora_A", nn::Linear(in, rank, false));
  lora_b_ = register_module("lora_B", nn::Linear(rank, out, false));
  lora_a_->to(weight.device(), weight.scalar_type());
  lora_b_->to(weight.device(), weight.scalar_type());
  const auto size = static_cast<double>(rank);
  scale_ = alpha / (by_root ? std::sqrt(size) : size);
}

torch::Tensor ProjectionImpl::merged_weight() const {
  if (!lora_a_) return weight;
  const torch::Tensor change = lora_b_->weight.mm(lora_a_->weight) * scale_;
  return weight + (stored_in_out_ ? change.t() : change);
}

void ProjectionImpl::merge() {
  if (!lora_a_) return;
  const torch::NoGradGuard no_grad;
  weight.copy_(merged_weight());
  unregister_module("lora_A");
  unregister_module("lora_B");
  lora_a_ = lora_b_ = nullptr;
}

int64_t add_lora(torch::nn::Module& module, const LoraConfig& config) {
  for (torch::Tensor& parameter : module.parameters()) parameter.requires_grad_(false);
  std::vector<std::string> names;
  std::map<std::string, int64_t> found;
  int64_t count = 0;
  for (const auto& entry : module.named_modules(std::string(), /*include_self=*/false)) {
    auto* const projection = dynamic_cast<ProjectionImpl*>(entry.value().get());
    if (!projection) continue;
    const std::string last = entry.key().substr(entry.key().rfind('.') + 1);
    if (std::find(names.begin(), names.end(), last) == names.end()) names.push_back(last);
    for (const std::string& target : config.targets) {
      if (last != target && entry.key() != target && !entry.key().ends_with("." + target)) continue;
      ++found[target];
      if (!projection->adapted()) projection->adapt(config.rank, config.alpha, config.by_root), ++count;
    }
  }
  for (const std::string& target : config.targets)
    if (!found.contains(target))
      fail_usage("LoRA: no linear layer is called '", target, "'", did_you_mean(target, names),
                 "; there are ", join(names, ", "));
  return count;
}

}  // namespace tessera::models
