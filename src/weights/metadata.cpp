#include "weights/hub_config.h"

#include "core/error.h"
#include "io/files/json.h"

namespace tessera::train {
namespace {

models::ModelSpec read_model_spec(const std::string& json, const std::string& where) {
  const Value table = parse_json_value(json, where);
  const auto part = [&](const char* key) -> const std::string& {
    const Value* value = table.find(key);
    if (!value || !value->is_string()) fail(where, ": no '", key, "'");
    return value->as_string();
  };
  const Value* settings = table.find("settings");
  if (!settings || !settings->is_table()) fail(where, ": no 'settings'");
  models::ModelSpec spec{.name = part("name"), .family = part("family"), .settings = {}};
  spec.settings = models::find_family(spec.family).resolve(*settings);
  return spec;
}

}  // namespace

std::optional<models::ModelSpec> stored_model(const Metadata& metadata, const std::string& file) {
  const auto entry = metadata.find("tessera.model");
  if (entry == metadata.end()) return std::nullopt;
  try {
    return read_model_spec(entry->second, entry->first);
  } catch (const Error& error) {
    fail("'", file, "': metadata: ", error.what());
  }
}

}  // namespace tessera::train
