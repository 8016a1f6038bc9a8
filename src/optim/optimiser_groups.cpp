#include "optim/optimiser_groups.h"

#include "ops/torch.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

bool starts_with_part(std::string_view name, std::string_view part) {
  return name.starts_with(part) &&
         (name.size() == part.size() || name[part.size()] == '.' || part.back() == '.');
}

// A parameter's depth: {0} for the stem, {1, stage, block} for a block, {2} for the head.
using Place = std::array<int64_t, 3>;
constexpr Place kStem = {0, 0, 0}, kHead = {2, 0, 0};
constexpr int64_t kEnd = INT64_MAX;  // after all stages, or all blocks of a stage

// First parts of the names of stems, and of lists of blocks or stages.
constexpr std::string_view kStems[] = {"cls_token",
                                       "dist_token",
                                       "reg_token",
                                       "mask_token",
                                       "pos_embed",
                                       "pos_drop",
                                       "patch_embed",
                                       "norm_pre",
                                       "start_token",
                                       "patch_embeds.0",
                                       "cls_tokens",
                                       "pos_embeds.0",
                                       "absolute_pos_embed",
                                       "peg",
                                       "query_token",
                                       "stem",
                                       "stem1",
                                       "stem2",
                                       "conv1",
                                       "conv2",
                                       "conv3",
                                       "bn1",
                                       "bn2",
                                       "bn3",
                                       "x_embedder",
                                       "t_embedder",
                                       "y_embedder",
                                       "wte",
                                       "wpe"};
constexpr std::string_view kStacks[] = {
    "blocks", "layers", "stages", "patch_embeds", "pos_block", "pos_embeds", "pegs", "q_query", "h"};

Place place_of(const std::string& name) {
  for (const std::string_view stem : kStems)
    if (starts_with_part(name, stem)) return kStem;
  const auto parts = split(name, '.');
  // The numbers in a name are stage and block: "layers.1.blocks.0.…", "blocks.3.…", "blocks.0.1.…",
  // "layer2.0.…". Parts of a stage outside its blocks ("layers.1.downsample") belong to the stage's first
  // block.
  Place place = {1, 0, 0};
  size_t found = 0;
  const auto stage = parts[0].starts_with("layer") ? parse_int(parts[0].substr(5)) : std::nullopt;
  if (stage)
    place[++found] = *stage;
  else if (std::find(std::begin(kStacks), std::end(kStacks), parts[0]) == std::end(kStacks))
    return kHead;
  for (size_t i = 1; i < parts.size() && i < 4 && found < 2 && parts[i] != "downsample"; ++i)
    if (const auto number = parse_int(parts[i])) place[++found] = *number;
  return found == 0 ? kHead : place;
}

// A norm after blocks is not a separate layer, but belongs to the last of them: `final_norm` to the last of
// all blocks, "norm_list.2" to the last of a stage.
std::optional<Place> blocks_before(const std::string& name, std::string_view final_norm) {
  if (starts_with_part(name, final_norm)) return Place{1, kEnd, kEnd};
  if (!name.starts_with("norm_list.")) return std::nullopt;
  return Place{1, parse_int(split(name, '.')[1]).value_or(kEnd), kEnd};
}

// Vision-LSTM has two final norms: one for all tokens, then one for the vector that the head reads. Vision Mamba,
// Vision-RWKV and iGPT name theirs otherwise.
std::string_view final_norm_of(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const std::string_view norm : {"norm", "norm_f", "ln1", "ln_f", "legacy_norm"})
      if (starts_with_part(name, norm)) return norm;
  return "norm";
}

void check_rules(const std::vector<ParameterRule>& rules, const std::vector<std::string>& names) {
  for (const ParameterRule& rule : rules) require_match("optimiser.groups", rule.pattern, names);
}

// Returns "blocks.*" and "blocks.0.*" for "blocks.0.mlp": patterns of `levels` levels; 0 = all.
std::vector<std::string> patterns_of(const std::vector<std::string>& names, int levels) {
  std::vector<std::string> patterns;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    size_t dot = name.find('.');
    for (int level = 1; dot != std::string::npos && (levels == 0 || level <= levels); ++level) {
      if (const std::string made = name.substr(0, dot) + ".*"; seen.insert(made).second)
        patterns.push_back(made);
      dot = name.find('.', dot + 1);
    }
  }
  return patterns;
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void require_match(const char* key, const std::string& pattern, const std::vector<std::string>& names) {
  if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(pattern, name); }))
    return;
  std::vector<std::string> candidates = patterns_of(names, 0);
  candidates.insert(candidates.end(), names.begin(), names.end());
  std::string hint = did_you_mean(pattern, candidates);
  if (hint.empty()) hint = "; there are " + some_of(patterns_of(names, 1), 8);
  fail_usage(key, ": no parameter matches '", pattern, "'", hint, " (`tessera inspect` lists the names)");
}

std::vector<int64_t> layer_of_each(const std::vector<std::string>& names) {
  const std::string_view final_norm = final_norm_of(names);
  std::map<Place, int64_t> layers;
  for (const std::string& name : names)
    if (!blocks_before(name, final_norm)) layers[place_of(name)] = 0;
  int64_t next = 0;
  for (auto& [place, layer] : layers) layer = next++;
  std::vector<int64_t> result;
  for (const std::string& name : names) {
    const auto behind = blocks_before(name, final_norm);
    const auto after = layers.upper_bound(behind ? *behind : place_of(name));
    result.push_back(after == layers.begin() ? 0 : std::prev(after)->second);
  }
  return result;
}

std::vector<ParameterGroup> make_parameter_groups(const NamedTensors& parameters,
                                                  const GroupOptions& options) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters) names.push_back(name);
  const std::vector<int64_t> layers = layer_of_each(names);
  const int64_t top = layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end());
  const auto& exceptions = options.no_decay;
  check_rules(options.rules, names);
  std::vector<ParameterGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].first;
    const torch::Tensor& tensor = parameters[i].second;
    const bool free_of_decay = tensor.dim() <= 1 || name.ends_with(".bias") ||
                               std::any_of(exceptions.begin(), exceptions.end(),
                                           [&](const auto& pattern) { return matches(pattern, name); });
    double weight_decay = free_of_decay ? 0 : options.weight_decay;
    const double depth = static_cast<double>(top - layers[i]);
    double lr_scale =
        options.layer_decay == 1 ? 1 : std::max(options.min_scale, std::pow(options.layer_decay, depth));
    for (const ParameterRule& rule : options.rules) {
      if (!matches(rule.pattern, name)) continue;
      lr_scale *= rule.lr_scale;
      if (rule.weight_decay >= 0) weight_decay = rule.weight_decay;
    }
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
  NamedTensors all;  // layers are counted in the whole model, including frozen parts
  for (const auto& item : module.named_parameters()) all.emplace_back(item.key(), item.value());
  return without_frozen(make_parameter_groups(all, options));
}

std::vector<ParameterGroup> without_frozen(std::vector<ParameterGroup> groups) {
  for (ParameterGroup& group : groups)
    std::erase_if(group.parameters, [](const auto& one) { return !one.second.requires_grad(); });
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  return groups;
}

}  // namespace tessera::train
