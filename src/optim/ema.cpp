#include "optim/ema.h"

#include "ops/torch.h"

#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "optim/plain_loops.h"
#include "optim/plain_tensors.h"

namespace tessera::train {

void EmaConfig::check(const std::string& where) const {
  if (!(decay >= 0 && decay < 1))
    fail_usage(where, ".decay is ", shortest(decay), ", must be at least 0 and below 1");
}

Ema::Ema(const EmaConfig& config, const NamedTensors& model) : config_(config) {
  config.check();
  for (const auto& [name, tensor] : model) average_.emplace_back(name, tensor.detach().clone());
}

double Ema::decay_at(int64_t update) const {
  if (!config_.warmup) return config_.decay;
  return std::min(config_.decay, 1 - std::pow(static_cast<double>(update), -2.0 / 3));
}

void Ema::check_same(const NamedTensors& model) const {
  check(model.size() == average_.size(), "ema: the model has ", model.size(), " tensors, the average ",
        average_.size());
  for (size_t i = 0; i < model.size(); ++i)
    check(model[i].first == average_[i].first && model[i].second.sizes() == average_[i].second.sizes(),
          "ema: tensor ", i, " is '", model[i].first, "' ", model[i].second.sizes(), " in the model, '",
          average_[i].first, "' ", average_[i].second.sizes(), " in the average");
}

void Ema::update(const NamedTensors& model) {
  check_same(model);
  const torch::NoGradGuard no_grad;
  const double keep = decay_at(++updates_), add = 1 - keep;
  std::vector<int64_t> sizes(model.size(), 0);  // 0 = not for the plain loop
  std::vector<torch::Tensor> averages, models;  // other floating-point tensors
  for (size_t i = 0; i < model.size(); ++i) {
    torch::Tensor average = average_[i].second;
    const torch::Tensor tensor = model[i].second.detach();
    if (plain::is_plain(tensor) && plain::is_plain(average) && plain::same_layout(tensor, average))
      sizes[i] = tensor.numel();
    else if (average.is_floating_point())
      averages.push_back(average), models.push_back(tensor);
    else
      average.copy_(average * keep + tensor * add);
  }
  if (!averages.empty()) {
    at::_foreach_lerp_(averages, models, add);
  }
  const auto blocks = plain::cut_into_blocks(sizes);
  plain::for_each_block(blocks, [&](size_t i) {
    const auto& [tensor, begin, end] = blocks[i];
    plain::average(average_[tensor].second.data_ptr<float>() + begin,
                   model[tensor].second.const_data_ptr<float>() + begin, end - begin,
                   static_cast<float>(add));
  });
}

void Ema::exchange(const NamedTensors& model) {
  check_same(model);
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < model.size(); ++i) {
    torch::Tensor tensor = model[i].second;
    const torch::Tensor content = tensor.detach();
    tensor.set_data(average_[i].second);
    average_[i].second = content;
  }
}

void Ema::load_state(int64_t updates, const NamedTensors& tensors) {
  check(updates >= 0, "ema state: update count is ", updates);
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> given(tensors.begin(), tensors.end());
  for (const auto& [name, average] : average_) {
    const auto found = given.find(name);
    check(found != given.end(), "ema state: tensor '", name, "' is missing");
    check(found->second.sizes() == average.sizes(), "ema state: tensor '", name, "' has shape ",
          found->second.sizes(), ", must be ", average.sizes());
  }
  check(given.size() == average_.size(), "ema state: ", given.size(), " tensors, must be ", average_.size());
  for (auto& [name, average] : average_) average.copy_(given.at(name));
  updates_ = updates;
}

}  // namespace tessera::train
