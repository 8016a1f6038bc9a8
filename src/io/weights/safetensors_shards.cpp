#include "io/weights/safetensors_shards.h"

#include <iomanip>
#include <memory>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"

namespace tessera {
namespace {

constexpr JsonLimits kIndexLimits = {.max_bytes = uint64_t{64} << 20, .max_depth = 3, .max_keys = 200'000};
constexpr size_t kMostFiles = 4096;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// File names in the index must not lead out of its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && printable(name) == name;
}

}  // namespace

ShardIndex read_shard_index(const std::string& index_path) {
  const auto index = parse_json(read_text(index_path, kIndexLimits.max_bytes), index_path, kIndexLimits);
  check(index.is_object(), index_path, " is ", index.type_name(),
        R"(, must be an object with a "weight_map")");
  const auto map = index.find("weight_map");
  check(map != index.end() && map->is_object(), index_path, R"(: has no object "weight_map")");
  ShardIndex out;
  for (const auto& [tensor, file] : map->items()) {
    check(file.is_string() && is_plain_name(file.get_ref<const std::string&>()), index_path, ": tensor '",
          printable(tensor), "' must name a file of the same folder");
    out.files[folder_of(index_path) + file.get<std::string>()].insert(tensor);
    check(out.files.size() <= kMostFiles, index_path, ": names more than ", kMostFiles, " files");
  }
  if (const auto texts = index.find("metadata"); texts != index.end() && texts->is_object())
    for (const auto& [key, value] : texts->items())
      if (value.is_string()) out.metadata.emplace(key, value.get<std::string>());
  return out;
}

void write_sharded_safetensors(const std::string& index_path, const std::vector<TensorView>& tensors,
                               const Metadata& metadata, uint64_t most_bytes,
                               const std::function<void()>& before_each) {
  stream_sharded_safetensors(index_path, tensors, metadata, most_bytes, bytes_of_views(before_each));
}

void stream_sharded_safetensors(const std::string& index_path, const std::vector<TensorView>& tensors,
                                const Metadata& metadata, uint64_t most_bytes,
                                const BytesOf& bytes_of_tensor) {
  check(index_path.ends_with(kShardIndexEnding), "'", index_path, "' must end in ", kShardIndexEnding);
  std::vector<std::vector<TensorView>> shards(1);
  uint64_t held = 0, total = 0;
  for (const TensorView& tensor : tensors) {
    const uint64_t bytes =
        tensor_bytes(tensor.shape, tensor.dtype).value_or(0);  // a size that overflows is refused below
    if (!shards.back().empty() && held + bytes > most_bytes) {
      shards.emplace_back();
      held = 0;
    }
    shards.back().push_back(tensor);
    held += bytes;
    total += bytes;
  }
  check(shards.size() <= kMostFiles, "'", index_path, "': ", shards.size(), " files of at most ",
        human_bytes(most_bytes), ", more than ", kMostFiles);
  const std::string folder = folder_of(index_path);
  const std::string stem = index_path.substr(
      folder.size(), index_path.size() - folder.size() - std::string(kShardIndexEnding).size());
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  for (const auto& [key, value] : metadata) index["metadata"][key] = value;
  nlohmann::json map = nlohmann::json::object();   // sorted: an ordered one takes linear time per key
  std::vector<std::unique_ptr<AtomicFile>> files;  // committed together: a mixture could be loaded
  for (size_t i = 0; i < shards.size(); ++i) {
    std::ostringstream name;
    name << stem << "-" << std::setfill('0') << std::setw(5) << i + 1 << "-of-" << std::setw(5)
         << shards.size() << ".safetensors";
    AtomicFile& file = *files.emplace_back(std::make_unique<AtomicFile>(folder + name.str()));
    put_safetensors(file, folder + name.str(), shards[i], {{"format", "pt"}}, bytes_of_tensor);
    file.finish();
    for (const TensorView& tensor : shards[i]) map[tensor.name] = name.str();
  }
  index["weight_map"] = map;
  for (const auto& file : files) file->commit();
  write_text_atomic(index_path, index.dump(2) + "\n");
}

}  // namespace tessera
