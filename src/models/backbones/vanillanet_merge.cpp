#include "models/backbones/baselines.h"

#include <map>
#include <string>

#include "core/error.h"

namespace tessera::models {
namespace {

constexpr double kNormEps = 1e-6;

// A layer y = weight x + bias over channels; the weight is [out, in] or [out, in, rows, columns].
struct Layer {
  torch::Tensor weight, bias;
};

class Merger {
 public:
  explicit Merger(const NamedTensors& trained) : tensors_(trained.begin(), trained.end()) {}

  NamedTensors merged() const {
    if (const auto slope = tensors_.find("act_learn"); slope != tensors_.end())
      check(slope->second.item<double>() == 1, "the slope of the leaky ReLU is ",
            slope->second.item<double>(),
            ", the merged form needs 1: train for more than model.slope_epochs epochs");
    NamedTensors out;
    const auto add = [&](const std::string& name, const Layer& layer) {
      const torch::ScalarType dtype = tensors_.at("stem1.0.weight").scalar_type();
      out.emplace_back(name + ".weight", layer.weight.to(dtype).contiguous());
      out.emplace_back(name + ".bias", layer.bias.to(dtype).contiguous());
    };
    add("stem.0", joined(normed("stem1.0", "stem1.1"), normed("stem2.0", "stem2.1")));
    add("stem.1", normed("stem2.2", "stem2.2.bn"));
    for (int64_t i = 0; tensors_.contains("stages." + std::to_string(i) + ".conv1.0.weight"); ++i) {
      const std::string stage = "stages." + std::to_string(i) + ".";
      add(stage + "conv",
          joined(normed(stage + "conv1.0", stage + "conv1.1"), normed(stage + "conv2.0", stage + "conv2.1")));
      add(stage + "act", normed(stage + "act", stage + "act.bn"));
    }
    if (!tensors_.contains("cls2.0.weight")) return out;
    Layer head = joined(normed("cls1.2", "cls1.3"), {at("cls2.0.weight"), at("cls2.0.bias")});
    head.weight = head.weight.flatten(1);
    add("cls.2", head);
    return out;
  }

 private:
  torch::Tensor at(const std::string& name) const {
    const auto found = tensors_.find(name);
    check(found != tensors_.end(), "no tensor '", name, "': not the training form of a VanillaNet");
    return found->second.to(torch::kFloat64);
  }

  // Merges a layer and its batch norm. The layers of the series activation have no bias.
  Layer normed(const std::string& layer, const std::string& norm) const {
    const torch::Tensor factor = at(norm + ".weight") * (at(norm + ".running_var") + kNormEps).rsqrt();
    const torch::Tensor weight = at(layer + ".weight"), mean = at(norm + ".running_mean");
    const bool biased = tensors_.contains(layer + ".bias");
    return {weight * factor.view({-1, 1, 1, 1}),
            at(norm + ".bias") + ((biased ? at(layer + ".bias") : torch::zeros_like(mean)) - mean) * factor};
  }

  // Merges the first layer with a second one of 1x1 cells after it.
  static Layer joined(const Layer& first, const Layer& second) {
    const torch::Tensor matrix = second.weight.flatten(1);
    return {torch::tensordot(matrix, first.weight, {1}, {0}), second.bias + matrix.matmul(first.bias)};
  }

  std::map<std::string, torch::Tensor> tensors_;
};

}  // namespace

NamedTensors merged_vanillanet(const NamedTensors& trained) { return Merger(trained).merged(); }

}  // namespace tessera::models
