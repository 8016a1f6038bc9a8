#include "weights/published_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array kNames = {"model.safetensors",           "model.safetensors.index.json",
                               "pytorch_model.bin",           "pytorch_model.bin.index.json",
                               "open_clip_model.safetensors", "open_clip_pytorch_model.bin",
                               "model.fp32.safetensors",      "model.fp16.safetensors",
                               "model.bf16.safetensors",      "pytorch_model.fp16.bin"};
constexpr JsonLimits kLimits = {.max_bytes = uint64_t{16} << 20, .max_depth = 16, .max_keys = 200'000};

// Returns a tree without nulls, which mean "default". Among timm's constructor arguments null is a value; it
// becomes "none" here.
nlohmann::json without_nulls(const nlohmann::json& tree, bool arguments = false) {
  if (!tree.is_object()) return tree;
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : tree.items())
    if (!value.is_null())
      out[key] = without_nulls(value, key == "model_args");
    else if (arguments)
      out[key] = "none";
  return out;
}

bool is_for_people(const fs::path& file) {
  const std::string name = lower(file.filename().string()), end = lower(file.extension().string());
  if (name.starts_with(".") || name.starts_with("license") || name.starts_with("readme")) return true;
  constexpr std::array kEndings = {".md", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".webp"};
  return std::find(kEndings.begin(), kEndings.end(), end) != kEndings.end();
}

// True for a shard of an index that was read ("model-00001-of-00002.safetensors").
bool is_shard(const std::string& name) { return name.find("-of-") != std::string::npos; }

}  // namespace

std::string published_file_in(const std::string& folder) {
  for (const char* name : kNames)
    if (const fs::path file = fs::path(folder) / name; file_exists(file.string())) return file.string();
  return "";
}

std::string other_weights_in(const std::string& folder) {
  constexpr std::array kEndings = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz"};
  if (file_exists((fs::path(folder) / "adapter_config.json").string()))
    return "; its adapter of PEFT belongs to a base model: merge it there (merge_and_unload) and save that; "
           "`tessera chat --adapter` takes adapters of language models";
  std::vector<std::string> found, folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (std::ranges::count(kEndings, lower(path.extension().string())) > 0)
      found.push_back(path.filename().string());
    else if (!published_file_in(path.string()).empty() || file_exists((path / "model.safetensors").string()))
      folders.push_back(path.filename().string());
  }
  std::sort(found.begin(), found.end()), std::sort(folders.begin(), folders.end());
  if (found.empty() && folders.empty()) return "";
  return found.empty() ? "; give one of its folders: " + some_of(folders)
                       : "; give one of its files: " + some_of(found);
}

bool is_published_name(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Value read_published_json(const std::string& path, std::initializer_list<const char*> without) {
  const nlohmann::json tree = parse_json(read_text(path, kLimits.max_bytes), path, kLimits);
  check(tree.is_object(), path, " is ", tree.type_name(), ", must be an object");
  nlohmann::json plain = without_nulls(tree);
  for (const char* key : without) plain.erase(key);
  return parse_json_value(plain.dump(), path);
}

PublishedFolder::PublishedFolder(const std::string& weights_file, bool any_name)
    : listed_(is_published_name(weights_file)) {
  if (!listed_ && !any_name) return;
  folder_ = fs::path(weights_file).parent_path().string();
  if (folder_.empty()) folder_ = ".";
  count_as_read(weights_file);
}

std::string PublishedFolder::find(std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* name : names)
    if (const fs::path path = fs::path(folder_) / name;
        !folder_.empty() && fs::is_regular_file(path, error)) {
      count_as_read(path.string());
      return path.string();
    }
  return "";
}

Value PublishedFolder::read(std::initializer_list<const char*> names) {
  const std::string path = find(names);
  return path.empty() ? Value(Value::Table()) : read_published_json(path);
}

void PublishedFolder::count_as_read(const std::string& path) {
  read_.insert(fs::path(path).filename().string());
}

void PublishedFolder::note_unread(const std::string& file, std::vector<std::string> keys) {
  if (!keys.empty()) notes_.push_back(text(file, ": no use for ", some_of(keys, 8, 200)));
}

std::vector<std::string> PublishedFolder::lines() const {
  std::vector<std::string> lines = notes_, names;
  std::error_code error;
  const bool sharded = std::any_of(read_.begin(), read_.end(),
                                   [](const std::string& name) { return name.ends_with(".index.json"); });
  if (listed_)
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file(error) || read_.contains(name) || is_for_people(entry.path())) continue;
      if (!(sharded && is_shard(name))) names.push_back(printable(name));
    }
  std::ranges::sort(names);
  if (!names.empty()) lines.push_back(text(folder_, ": not read: ", some_of(names, 8, 200)));
  return lines;
}

}  // namespace tessera::train
