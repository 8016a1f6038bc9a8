#include "open/weights.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/json.h"
#include "tasks/base/registry.h"
#include "weights/hub_config.h"
#include "weights/load_tensors.h"
#include "weights/migrate.h"

namespace tessera::train {
namespace {

// Entries that do not belong to the task.
constexpr std::array kCommon = {"tessera.model", "tessera.task", "tessera.preprocess", "tessera.recipe",
                                "tessera.quantization"};
constexpr std::string_view kPrefix = "tessera.";

const std::string* entry(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

}  // namespace

Metadata weights_metadata(const WeightsInfo& info) {
  Value model;
  model.set("name", info.model.name);
  model.set("family", info.model.family);
  model.set("settings", info.model.settings);
  Metadata metadata = {{"format", "pt"},  // required by readers of published weights
                       {"tessera.model", json_text(model)},
                       {"tessera.preprocess", json_text(write_config(info.preprocess))},
                       {"tessera.task", tasks::task_name(info.task)},
                       {"tessera.recipe", info.recipe}};
  for (const auto& [key, value] : info.task_metadata.as_table())
    metadata[std::string(kPrefix) + key] = json_text(value);
  if (info.quantization.enabled())
    metadata["tessera.quantization"] = json_text(write_config(info.quantization));
  return metadata;
}

std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info) {
  return save_tensors(path, tensors, weights_metadata(info));
}

namespace {

// Reads the task's settings from the recipe of the weights; without a recipe, returns the defaults.
Value read_task(const std::string& name, const std::string& recipe) {
  Value section;
  if (!recipe.empty()) {
    const Value table = migrate_recipe(parse_toml(recipe, "tessera.recipe"));
    if (const Value* stored = table.find("task"); stored && stored->is_table()) section = *stored;
  }
  if (!section.find("name") && !name.empty()) section.set("name", name);
  const Value task = tasks::resolve_task(section);
  if (!name.empty() && *task.find("name") != Value(name))
    fail("tessera.task is '", printable(name), "', the recipe's is '", task.find("name")->as_string(), "'");
  return task;
}

Value read_task_metadata(const Metadata& metadata) {
  Value out;
  for (const auto& [key, content] : metadata)
    if (key.starts_with(kPrefix) && std::find(kCommon.begin(), kCommon.end(), key) == kCommon.end())
      out.as_table().emplace_back(key.substr(kPrefix.size()), parse_json_value(content, key));
  return out;
}

}  // namespace

WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name) {
  WeightsInfo info;
  info.task = tasks::resolve_task({});
  const std::optional<models::ModelSpec> model = stored_model(metadata, name);
  if (!model) return info;
  info.ours = true;
  info.model = *model;
  try {
    if (const std::string* preprocess = entry(metadata, "tessera.preprocess"))
      info.preprocess =
          read_config<data::Preprocess>(parse_json_value(*preprocess, "tessera.preprocess"), "preprocess");
    if (const std::string* bits = entry(metadata, "tessera.quantization"))
      info.quantization =
          read_config<QuantizationConfig>(parse_json_value(*bits, "tessera.quantization"), "quantization");
    if (const std::string* recipe = entry(metadata, "tessera.recipe")) info.recipe = *recipe;
    const std::string* task = entry(metadata, "tessera.task");
    info.task = read_task(task ? *task : "", info.recipe);
    info.task_metadata = read_task_metadata(metadata);
  } catch (const Error& error) {
    fail("'", name, "': metadata: ", error.what());
  }
  return info;
}

}  // namespace tessera::train
