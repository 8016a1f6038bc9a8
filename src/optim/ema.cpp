#include "optim/ema.h"

#include "ops/torch.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "nn/host_values.h"
#include "ops/gpu.h"
#include "optim/plain_loops.h"
#include "optim/plain_tensors.h"

namespace tessera::train {
namespace {

// Computes average <- average + share (model - average), with a [] share on their device. Lists have a limited
// size, since the differences need memory.
void move_towards(const std::vector<torch::Tensor>& averages, const std::vector<torch::Tensor>& models,
                  const torch::Tensor& share) {
  constexpr int64_t kMostAtOnce = int64_t{1} << 26;  // numbers
  for (size_t begin = 0, end = 0; begin < averages.size(); begin = end) {
    int64_t numbers = 0;
    for (; end < averages.size() && (end == begin || numbers + averages[end].numel() <= kMostAtOnce); ++end)
      numbers += averages[end].numel();
    const at::TensorList to(averages.data() + begin, end - begin), from(models.data() + begin, end - begin);
    const std::vector<torch::Tensor> steps = at::_foreach_sub(from, to);
    at::_foreach_mul_(steps, share);
    at::_foreach_add_(to, steps);
  }
}

}  // namespace

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

int64_t Ema::updates() const {
  if (!updates_there_.defined()) return updates_;
  return static_cast<int64_t>(*updates_there_.cpu().const_data_ptr<double>());
}

// Counts an update if `counts`. Returns the share of the model in it, [] float32, or zero.
torch::Tensor Ema::share_there(const torch::Tensor& counts) {
  if (!updates_there_.defined())
    updates_there_ =
        ops::sent_to(counts.device(), torch::full({}, static_cast<double>(updates_), torch::kFloat64));
  updates_there_.add_(counts);
  torch::Tensor share = torch::full_like(updates_there_, 1 - config_.decay);
  if (config_.warmup) share = updates_there_.pow(-2.0 / 3).clamp_min(1 - config_.decay);
  return torch::where(counts, share, torch::zeros_like(share)).to(torch::kFloat32);
}

torch::Tensor AveragingThere::take(const torch::Tensor& parameter) {
  for (size_t i = 0; i < pairs.size(); ++i, ++next) {
    auto& [model, average] = pairs[next % pairs.size()];
    if (!model.defined() || !model.is_same(parameter)) continue;
    if (average.scalar_type() != torch::kFloat32 || !average.is_non_overlapping_and_dense() ||
        !plain::same_layout(average, parameter))
      return {};
    model.reset();
    return average;
  }
  return {};
}

AveragingThere Ema::begin_there(const NamedTensors& model, const torch::Tensor& counts) {
  check_same(model);
  const torch::NoGradGuard no_grad;
  AveragingThere all{share_there(counts), {}};
  for (size_t i = 0; i < model.size(); ++i) all.pairs.emplace_back(model[i].second, average_[i].second);
  return all;
}

void Ema::finish_there(const AveragingThere& rest, const torch::Tensor& counts) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& share = rest.share;
  std::vector<torch::Tensor> averages, models;
  for (const auto& [model, to] : rest.pairs) {
    if (!model.defined()) continue;
    torch::Tensor average = to;
    const torch::Tensor tensor = model.detach();
    if (average.is_floating_point())
      averages.push_back(average), models.push_back(tensor);
    else
      average.copy_(
          torch::where(counts, (average * (1 - share) + tensor * share).to(average.scalar_type()), average));
  }
  move_towards(averages, models, share);
}

void Ema::update(const NamedTensors& model) {
  check_same(model);
  const torch::NoGradGuard no_grad;
  updates_ = updates(), updates_there_.reset();
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

void Ema::exchange_rows(const NamedTensors& rows) {
  check_same(rows);
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < rows.size(); ++i) {
    torch::Tensor part = rows[i].second.detach();
    const torch::Tensor content = part.clone();
    part.copy_(average_[i].second);
    average_[i].second.copy_(content);
  }
  nn::note_load();
}

void Ema::load_state(int64_t updates, NamedTensors tensors) {
  check(updates >= 0, "ema state: update count is ", updates);
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> given(tensors.begin(), tensors.end());
  tensors.clear();
  for (const auto& [name, average] : average_) {
    const auto found = given.find(name);
    check(found != given.end(), "ema state: tensor '", name, "' is missing");
    check(found->second.sizes() == average.sizes(), "ema state: tensor '", name, "' has shape ",
          found->second.sizes(), ", must be ", average.sizes());
  }
  check(given.size() == average_.size(), "ema state: ", given.size(), " tensors, must be ", average_.size());
  for (auto& [name, average] : average_) average.copy_(given.extract(name).mapped());
  updates_ = updates, updates_there_.reset();
}

}  // namespace tessera::train
