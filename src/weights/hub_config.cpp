#include "weights/hub_config.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "models/base/model.h"

namespace tessera::train {
namespace {

constexpr std::array kNames = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                               "pytorch_model.bin.index.json"};
constexpr JsonLimits kLimits = {.max_bytes = uint64_t{16} << 20, .max_depth = 8, .max_keys = 200'000};

std::string text_at(const nlohmann::json& table, const char* key) {
  const auto value = table.find(key);
  return value != table.end() && value->is_string() ? value->get<std::string>() : "";
}

// Reads the preprocessing of a configuration under our keys. Absent keys keep the defaults of the published
// size.
Value preprocess_in(const nlohmann::json& config) {
  Value out;
  if (const auto crop = config.find("crop_pct"); crop != config.end() && crop->is_number())
    out.set("crop", crop->get<double>());
  for (const char* key : {"interpolation", "crop_mode"})
    if (const std::string word = text_at(config, key); !word.empty()) out.set(key, word);
  for (const char* key : {"mean", "std"}) {
    const auto list = config.find(key);
    if (list == config.end() || !list->is_array()) continue;
    Value::Array numbers;
    for (const auto& number : *list)
      if (number.is_number()) numbers.emplace_back(number.get<double>());
    if (numbers.size() == list->size()) out.set(key, numbers);
  }
  return out;
}

// Returns "architecture.tag". A tag that is not in the table of published tags is dropped, since the
// configuration contains all of its settings.
std::string model_name(const std::string& architecture, const std::string& tag) {
  if (tag.empty()) return architecture;
  try {
    models::tag_preprocess({architecture, tag});
    return architecture + "." + tag;
  } catch (const Error&) {
    return architecture;
  }
}

}  // namespace

std::optional<HubConfig> read_hub_config(const std::string& weights_file) {
  const std::filesystem::path file(weights_file);
  if (std::find(kNames.begin(), kNames.end(), file.filename().string()) == kNames.end()) return std::nullopt;
  const std::string path = (file.parent_path() / "config.json").string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const nlohmann::json config = parse_json(read_text(path, kLimits.max_bytes), path, kLimits);
  check(config.is_object(), path, " is ", config.type_name(), ", must be an object");
  const std::string architecture = text_at(config, "architecture");
  if (architecture.empty()) return std::nullopt;
  const auto inner = config.find("pretrained_cfg");  // older files have all keys at the top level
  const nlohmann::json& weights = inner != config.end() && inner->is_object() ? *inner : config;
  HubConfig out;
  out.model = model_name(architecture, text_at(weights, "tag"));
  out.preprocess = preprocess_in(weights);
  if (const auto names = config.find("label_names"); names != config.end() && names->is_array())
    for (const auto& name : *names)
      if (name.is_string()) out.class_names.push_back(name.get<std::string>());
  return out;
}

}  // namespace tessera::train
