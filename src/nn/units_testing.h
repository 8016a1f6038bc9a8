// For tests of stacks: weights of units that are not numbers outside the passes of their units.
#pragma once

#include <limits>
#include <unordered_map>

#include "nn/units.h"

namespace tessera::nn {

// A stack that reads a weight of a unit outside a pass of this unit gets NaN.
class PoisonedUnits final : public UnitKeeper {
 public:
  explicit PoisonedUnits(torch::nn::Module& module) : PoisonedUnits(units_of(module)) {}
  explicit PoisonedUnits(const std::vector<std::vector<torch::Tensor>>& units) {
    const torch::NoGradGuard no_grad;
    for (const auto& unit : units)
      for (const torch::Tensor& tensor : unit) {
        values_.emplace(tensor.unsafeGetTensorImpl(), tensor.detach().clone());
        tensors_.push_back(tensor);
      }
    leave(tensors_);
  }
  ~PoisonedUnits() override { enter(tensors_); }
  PoisonedUnits(const PoisonedUnits&) = delete;
  PoisonedUnits& operator=(const PoisonedUnits&) = delete;

  void enter(const std::vector<torch::Tensor>& parameters) override {
    for (const torch::Tensor& tensor : parameters)
      if (const auto value = values_.find(tensor.unsafeGetTensorImpl()); value != values_.end())
        tensor.variable_data().copy_(value->second);
  }
  void leave(const std::vector<torch::Tensor>& parameters) override {
    for (const torch::Tensor& tensor : parameters)
      if (values_.contains(tensor.unsafeGetTensorImpl()))
        tensor.variable_data().fill_(std::numeric_limits<double>::quiet_NaN());
  }
  void enter_backward(const std::vector<torch::Tensor>& parameters) override {
    leave(running_);
    enter(parameters);
    running_ = parameters;
  }
  size_t size() const { return tensors_.size(); }

 private:
  std::unordered_map<const c10::TensorImpl*, torch::Tensor> values_;
  std::vector<torch::Tensor> tensors_, running_;
};

// A stack whose blocks before `cut` run elsewhere, as in a pipeline: their outputs are not numbers, except that of the last
// one, which is given.
class CutUnits final : public UnitRunner {
 public:
  // Runs all units, and keeps the output of unit `cut` - 1.
  explicit CutUnits(size_t cut) : cut_(cut) {}
  CutUnits(size_t cut, torch::Tensor given) : cut_(cut), given_(std::move(given)) {}

  torch::Tensor run(const torch::Tensor& x, const Unit& unit) override {
    const size_t index = next_++;
    if (!given_.defined() || index >= cut_) {
      const torch::Tensor y = run_unit_here(x, unit);
      if (index + 1 == cut_) kept_ = y;
      return y;
    }
    return index + 1 == cut_ ? given_ : torch::full_like(x, std::numeric_limits<double>::quiet_NaN());
  }
  size_t count() const { return next_; }
  const torch::Tensor& kept() const { return kept_; }

 private:
  size_t cut_, next_ = 0;
  torch::Tensor given_, kept_;
};

}  // namespace tessera::nn
