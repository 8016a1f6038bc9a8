#include "recipe/recipe_files.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "recipe/recipe.h"
#include "weights/migrate.h"

namespace tessera::train {
namespace {

constexpr size_t kMostLevels = 8;  // levels of bases
constexpr int64_t kMostFiles = 100;
constexpr uint64_t kMostBytes = 1 << 20;

// Pairs of keys that set one length in two ways: the last one given counts.
constexpr std::array<std::array<const char*, 3>, 2> kRivals = {
    {{"train", "epochs", "steps"}, {"schedule", "warmup_epochs", "warmup_steps"}}};

// If an overlay sets a length in one way, the other key is removed.
void drop_rival(Value& base, const Value& over) {
  for (const auto& [section, one, other] : kRivals) {
    Value* table = base.find(section);
    if (!table || !table->is_table()) continue;
    const auto take_back = [&](const char* given, const char* rival) {
      const Value* value = over.find(text(section, ".", given));
      if (value && *value != Value(0) && *value != Value(0.0))
        std::erase_if(table->as_table(), [&](const auto& entry) { return entry.first == rival; });
    };
    take_back(one, other);
    take_back(other, one);
  }
}

std::vector<std::string> names_of(const Value& base, const std::string& path) {
  if (base.is_string()) return {base.as_string()};
  const char* rule = "must be a file name or a list of file names";
  if (!base.is_array()) fail_usage(path, ": base is ", base.type_name(), ", ", rule);
  std::vector<std::string> names;
  for (const Value& name : base.as_array()) {
    if (!name.is_string()) fail_usage(path, ": base holds ", name.type_name(), ", ", rule);
    names.push_back(name.as_string());
  }
  return names;
}

class FileReader {
 public:
  Value read(const std::string& path) {
    if (std::find(chain_.begin(), chain_.end(), path) != chain_.end())
      fail_usage(path, ": its bases lead back to it, must not go in a circle: ", join(chain_, " -> "), " -> ",
                 path);
    if (chain_.size() > kMostLevels)
      fail_usage(path, ": more than ", kMostLevels, " levels of bases, from ", chain_.front(), " on");
    if (++files_ > kMostFiles) fail_usage(path, ": more than ", kMostFiles, " files based on one another");
    Value table;
    bool opened = false;
    try {
      const std::string content = read_text(path, kMostBytes);
      opened = true;
      table = migrate_layer(parse_toml(content, path));
    } catch (const Error& error) {  // a missing file is a failure, invalid content a usage error
      const std::string asked = chain_.empty() ? "" : text(" (a base of ", chain_.back(), ")");
      throw Error(opened ? ErrorKind::usage : ErrorKind::failed, text("the recipe: ", error.what(), asked));
    }
    const Value* base = table.find("base");
    if (!base) return table;
    const auto folder = std::filesystem::path(path).parent_path();
    Value merged;
    chain_.push_back(path);
    for (const std::string& name : names_of(*base, path))
      apply_overrides(merged, read((folder / name).lexically_normal().string()));
    chain_.pop_back();
    std::erase_if(table.as_table(), [](const auto& entry) { return entry.first == "base"; });
    apply_overrides(merged, table);
    return merged;
  }

 private:
  std::vector<std::string> chain_;  // files being read, each a base of its predecessor
  int64_t files_ = 0;
};

// Returns the path of a recipe given by path or short name ("demo", "shapes/dit"): in this folder, in
// ./recipes, or among the installed recipes. Returns `name` if there is none.
std::string found_recipe(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (name.empty() || fs::is_regular_file(name, error) || fs::path(name).is_absolute()) return name;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  const std::string inner =
      name.starts_with("recipes/") ? name.substr(std::string_view("recipes/").size()) : name;
  for (const fs::path& folder :
       {fs::path("."), fs::path("recipes"), program / "../share/tessera/recipes", program / "../recipes"})
    for (const char* ending : {"", ".toml"})
      if (const fs::path path = (folder / (inner + ending)).lexically_normal();
          fs::is_regular_file(path, error))
        return path.string();
  return name;
}

std::vector<std::string> dotted_keys() {
  std::vector<std::string> keys;
  const Value all = recipe_table(Recipe());
  for (const auto& [section, table] : all.as_table())
    for (const auto& [key, value] : table.as_table()) keys.push_back(section + "." + key);
  return keys;
}

}  // namespace

void apply_overrides(Value& base, const Value& over) {
  drop_rival(base, over);
  merge_layers(base, over);
}

Value read_based(const std::string& path) { return FileReader().read(found_recipe(path)); }

Value read_based(const std::vector<std::string>& paths) {
  Value merged;
  for (const std::string& path : paths) apply_overrides(merged, read_based(path));
  return merged;
}

Value parse_setting(const std::string& setting) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    fail_usage("--set '", setting, "': must be section.key=value, such as train.epochs=10");
  const std::string key(trim(std::string_view(setting).substr(0, equals)));
  if (key.find('.') == std::string::npos) fail_usage("unknown key '", key, "'", section_hint(key));
  Value table;
  table.set(key, parse_toml_value(trim(std::string_view(setting).substr(equals + 1))));
  return table;
}

void check_one_length(const std::vector<std::string>& settings) {
  Value both;
  for (const std::string& setting : settings) merge(both, parse_setting(setting));
  const Value *epochs = both.find("train.epochs"), *steps = both.find("train.steps");
  if (epochs && steps && *epochs != Value(0) && *steps != Value(0))
    fail_usage("train.epochs = ", toml_text(*epochs), " and train.steps = ", toml_text(*steps),
               " on one command line contradict each other: give one");
}

std::string section_hint(const std::string& key) {
  std::vector<std::string> matches;
  for (const std::string& known : dotted_keys())
    if (known.ends_with("." + key)) matches.push_back(known);
  if (matches.empty()) return did_you_mean(key, dotted_keys());
  return text(", did you mean '", join(matches, "' or '"), "'?");
}

}  // namespace tessera::train
