#include "train/optimiser_groups.h"

#include "ops/torch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/text.h"

namespace tessera::train {
namespace {

bool starts_with_part(std::string_view name, std::string_view part) {
  return name.starts_with(part) &&
         (name.size() == part.size() || name[part.size()] == '.' || part.back() == '.');
}

// Where a parameter lies in depth: {0} the stem, {1, stage, block} a block, {2} the head. The final norm has
// no place of its own.
using Place = std::array<int64_t, 3>;
constexpr Place kStem = {0, 0, 0}, kHead = {2, 0, 0};

Place place_of(const std::string& name) {
  static constexpr std::string_view stems[] = {
      "cls_token",  "dist_token",   "reg_token",          "mask_token",  "pos_embed",
      "pos_drop",   "patch_embed",  "norm_pre",           "start_token", "patch_embeds.0",
      "cls_tokens", "pos_embeds.0", "absolute_pos_embed", "peg"};
  for (const std::string_view stem : stems)
    if (starts_with_part(name, stem)) return kStem;
  const auto parts = split(name, '.');
  static constexpr std::string_view stacks[] = {"blocks",    "layers",     "stages", "patch_embeds",
                                                "pos_block", "pos_embeds", "pegs"};
  if (std::find(std::begin(stacks), std::end(stacks), parts[0]) == std::end(stacks)) return kHead;
  // The numbers on the way name stage and block: "layers.1.blocks.0.…", "blocks.3.…", "blocks.0.1.…". What
  // belongs to a stage but to none of its blocks ("layers.1.downsample") goes with the stage's first.
  Place place = {1, 0, 0};
  size_t found = 0;
  for (size_t i = 1; i < parts.size() && i < 4 && found < 2; ++i)
    if (const auto number = parse_int(parts[i])) place[++found] = *number;
  return found == 0 ? kHead : place;
}

}  // namespace

std::vector<int64_t> layer_of_each(const std::vector<std::string>& names) {
  std::map<Place, int64_t> layers;
  for (const std::string& name : names)
    if (!starts_with_part(name, "norm")) layers[place_of(name)] = 0;
  int64_t next = 0, last_below_head = 0;
  for (auto& [place, layer] : layers) {
    layer = next++;
    if (place != kHead) last_below_head = layer;
  }
  std::vector<int64_t> result;
  for (const std::string& name : names)
    result.push_back(starts_with_part(name, "norm") ? last_below_head : layers[place_of(name)]);
  return result;
}

std::vector<ParameterGroup> make_parameter_groups(const NamedTensors& parameters,
                                                  const GroupOptions& options) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters) names.push_back(name);
  const std::vector<int64_t> layers = layer_of_each(names);
  const int64_t top = layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end());
  const auto& exceptions = options.no_decay;
  std::vector<ParameterGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    const bool free_of_decay = tensor.dim() <= 1 || name.ends_with(".bias") ||
                               std::find(exceptions.begin(), exceptions.end(), name) != exceptions.end();
    const double weight_decay = free_of_decay ? 0 : options.weight_decay;
    const double depth = static_cast<double>(top - layers[i]);
    const double lr_scale =
        options.layer_decay == 1 ? 1 : std::max(options.min_scale, std::pow(options.layer_decay, depth));
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& g) {
      return g.lr_scale == lr_scale && g.weight_decay == weight_decay;
    });
    if (group == groups.end())
      groups.push_back({{parameters[i]}, lr_scale, weight_decay});
    else
      group->parameters.push_back(parameters[i]);
  }
  return groups;
}

std::vector<ParameterGroup> make_parameter_groups(const torch::nn::Module& module,
                                                  const GroupOptions& options) {
  NamedTensors trainable;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) trainable.emplace_back(item.key(), item.value());
  return make_parameter_groups(trainable, options);
}

}  // namespace tessera::train
