#include "tasks/base/momentum_network.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/text.h"

namespace tessera::tasks {
namespace {

// Registers the tensor as a buffer under its dotted name, in modules along the way.
void register_dotted(const std::shared_ptr<torch::nn::Module>& root, const std::string& name,
                     const torch::Tensor& tensor) {
  std::shared_ptr<torch::nn::Module> at = root;
  std::vector<std::string> path = split(name, '.');
  const std::string leaf = path.back();
  path.pop_back();
  for (const std::string& step : path) {
    const auto children = at->named_children();
    const auto* child = children.find(step);
    at = child ? *child : at->register_module(step, std::make_shared<torch::nn::Module>());
  }
  at->register_buffer(leaf, tensor);
}

}  // namespace

double cosine_momentum(double first, int64_t step, int64_t steps) {
  const double share = steps > 0 ? static_cast<double>(step) / static_cast<double>(steps) : 1;
  return 1 - (1 - first) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

models::ModelSpec momentum_spec(models::ModelSpec trained) {
  if (trained.settings.find("drop_path")) trained.settings.set("drop_path", 0.0);
  return trained;
}

MomentumNetwork::MomentumNetwork(const Modules& followers, const Modules& trained)
    : followers_(followers), trained_(trained), buffers_(std::make_shared<torch::nn::Module>()) {
  for (size_t i = 0; i < followers.size(); ++i) {
    const auto& [prefix, follower] = followers[i];
    for (torch::Tensor parameter : follower->parameters()) parameters_.push_back(parameter);
    for (torch::Tensor parameter : trained[i].second->parameters()) trained_parameters_.push_back(parameter);
    for (const auto& [name, tensor] : tessera::named_state(*follower)) {
      tensor.set_requires_grad(false);
      tensors_.push_back(tensor);
      register_dotted(buffers_, prefix + name, tensor);
    }
    for (const auto& [name, tensor] : tessera::named_state(*trained[i].second))
      trained_tensors_.push_back(tensor);
  }
  check(parameters_.size() == trained_parameters_.size() && tensors_.size() == trained_tensors_.size(),
        "a momentum network of ", tensors_.size(), " tensors follows one of ", trained_tensors_.size());
}

void MomentumNetwork::copy() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(trained_tensors_[i]);
}

void MomentumNetwork::follow(double keep) {
  const torch::NoGradGuard no_grad;
  at::_foreach_mul_(parameters_, keep);
  at::_foreach_add_(parameters_, trained_parameters_, 1 - keep);
}

void MomentumNetwork::take_mode() {
  for (size_t i = 0; i < followers_.size(); ++i)
    followers_[i].second->train(trained_[i].second->is_training());
}

}  // namespace tessera::tasks
