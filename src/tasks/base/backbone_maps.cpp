#include "tasks/base/layer_features.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace tessera::tasks {
namespace {

std::vector<int64_t> numbers_of(const Value& settings, const char* key) {
  std::vector<int64_t> numbers;
  if (const Value* list = settings.find(key); list && list->is_array())
    for (const Value& one : list->as_array()) numbers.push_back(one.as_int());
  return numbers;
}

int64_t number_of(const Value& settings, const char* key, int64_t otherwise) {
  const Value* found = settings.find(key);
  return found && found->is_int() ? found->as_int() : otherwise;
}

// The width and the stride of each stage's map.
struct StageMaps {
  std::vector<int64_t> widths, strides;
};

// `dims` has an entry for each stage. With `strides` it has one for the stem and for each block, and a stage begins at each block
// that pools (VanillaNet).
StageMaps stage_maps_of(const Value& settings, int64_t patch) {
  StageMaps maps{numbers_of(settings, "dims"), {}};
  const std::vector<int64_t> dims = maps.widths, pools = numbers_of(settings, "strides");
  if (!numbers_of(settings, "ada_pool").empty())
    fail_usage("model.ada_pool fixes the sides of the maps, heads of pixels and objects need strides");
  for (size_t i = 0; pools.empty() && i < dims.size(); ++i) maps.strides.push_back(patch << i);
  if (pools.empty() || dims.empty()) return maps;
  maps = {{dims[0]}, {patch}};
  for (size_t i = 0; i < pools.size(); ++i) {
    if (pools[i] > 1) maps.widths.push_back(0), maps.strides.push_back(maps.strides.back() * pools[i]);
    maps.widths.back() = dims.at(i + 1);
  }
  return maps;
}

}  // namespace

// `dim` is the width of a model with one grid.
BackboneMaps maps_of(const models::ModelSpec& spec, const std::vector<int64_t>& asked, int64_t count) {
  const Value& settings = spec.settings;
  BackboneMaps maps;
  maps.stages = settings.find("dims") != nullptr;
  const int64_t patch = number_of(settings, "patch_size", maps.stages ? 4 : 16);
  const StageMaps stages = stage_maps_of(settings, patch);
  // Dilated stages keep their grid (ResNet's output_stride).
  const int64_t coarsest = number_of(settings, "output_stride", std::numeric_limits<int64_t>::max());
  maps.blocks = asked;
  if (maps.blocks.empty())
    for (int64_t i = 0; i < (maps.stages ? count : 4); ++i)
      maps.blocks.push_back(maps.stages ? i : std::max<int64_t>(0, count * (i + 1) / 4 - 1));
  for (const int64_t block : maps.blocks) {
    if (block < 0 || block >= count)
      fail_usage("task.blocks names ", block, ", ", spec.name, " has ", count,
                 maps.stages ? " stages" : " blocks", ", counted from 0");
    const auto stage = static_cast<size_t>(block);
    maps.widths.push_back(maps.stages ? stages.widths.at(stage) : number_of(settings, "dim", 0));
    maps.strides.push_back(maps.stages ? std::min(stages.strides.at(stage), coarsest) : patch);
  }
  // Swin and ResNet pad their inputs; other pyramids halve whole grids, others cut whole patches.
  const bool pads = spec.family == "swin" || spec.family == "resnet";
  maps.unit = !maps.stages ? patch : pads ? 1 : stages.strides.back();
  return maps;
}

}  // namespace tessera::tasks
