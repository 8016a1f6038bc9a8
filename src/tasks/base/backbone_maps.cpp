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

}  // namespace

// `dims` has an entry per stage; `dim` is the width of a model with one grid.
BackboneMaps maps_of(const models::ModelSpec& spec, const std::vector<int64_t>& asked, int64_t count) {
  const Value& settings = spec.settings;
  const std::vector<int64_t> dims = numbers_of(settings, "dims");
  BackboneMaps maps;
  maps.stages = !dims.empty();
  const int64_t patch = number_of(settings, "patch_size", maps.stages ? 4 : 16);
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
    maps.widths.push_back(maps.stages ? dims.at(static_cast<size_t>(block)) : number_of(settings, "dim", 0));
    maps.strides.push_back(maps.stages ? std::min(patch << block, coarsest) : patch);
  }
  // Swin and ResNet pad their inputs; other pyramids halve whole grids, others cut whole patches.
  const bool pads = spec.family == "swin" || spec.family == "resnet";
  maps.unit = !maps.stages ? patch : pads ? 1 : patch << (dims.size() - 1);
  return maps;
}

}  // namespace tessera::tasks
