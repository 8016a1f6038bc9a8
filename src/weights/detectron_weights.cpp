#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

// Name ends of a norm's scale and of its statistics.
struct NormNames {
  std::string_view scale, mean, variance;
};
constexpr std::array<NormNames, 2> kNorms = {
    {{".norm.weight", ".norm.running_mean", ".norm.running_var"}, {"_bn_s", "_bn_rm", "_bn_riv"}}};

// True for tensors of the ResNet. Heads use GroupNorm, which has no statistics.
bool is_of_resnet(std::string_view name) {
  constexpr std::string_view kBottomUp = "backbone.bottom_up.";
  if (name.starts_with(kBottomUp)) name.remove_prefix(kBottomUp.size());
  const bool stage = name.size() > 3 && name.starts_with("res") && name[3] >= '2' && name[3] <= '5';
  return stage || name.starts_with("stem.conv1.") || name.starts_with("res_conv1_");
}

}  // namespace

NamedTensors absent_statistics(const std::vector<TensorView>& views) {
  NamedTensors statistics;
  for (const TensorView& view : views)
    for (const auto& [scale, mean, variance] : kNorms) {
      if (!is_of_resnet(view.name)) continue;
      if (view.name.ends_with(mean) || view.name.ends_with(variance)) return {};
      if (!view.name.ends_with(scale)) continue;
      const std::string norm = view.name.substr(0, view.name.size() - scale.size());
      statistics.emplace_back(norm + std::string(mean), torch::zeros(view.shape));
      statistics.emplace_back(norm + std::string(variance), torch::ones(view.shape));
    }
  return statistics;
}

std::pair<std::string, torch::Tensor> turned_first_convolution(const std::vector<TensorView>& views,
                                                               const std::string& path) {
  const auto reads_image = [](const TensorView& view) {
    return view.shape.size() == 4 && view.shape[1] == 3 && !view.name.ends_with("_momentum");
  };
  const auto found = std::find_if(views.begin(), views.end(), reads_image);
  if (found == views.end() || std::find_if(found + 1, views.end(), reads_image) != views.end())
    fail(path, ": ", found == views.end() ? "no tensor is" : "more than one tensor is",
         " a convolution of three channels, so that --bgr cannot turn it");
  return {found->name, to_tensor(*found).flip(1).contiguous()};
}

}  // namespace tessera::train
