#include "text/tokeniser.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/weights/safetensors_shards.h"

namespace tessera {
namespace {

constexpr const char *kSuffix = ".safetensors", *kKey = "tessera.tokenizer";
constexpr JsonLimits kLimits = {uint64_t{256} << 20, 2, 1};

// Returns the weights file of a run's folder: the final weights, or else the best.
std::string weights_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {"model", "best"})
    for (const char* ending : {kSuffix, kShardIndexEnding})
      if (const std::string file = (fs::path(path) / name).string() + ending; file_exists(file)) return file;
  return "";
}

}  // namespace

std::optional<std::string> stored_tokeniser(const std::string& path) {
  const std::string file = weights_of(path);
  const bool index = file.ends_with(kShardIndexEnding);
  if (!index && !file.ends_with(kSuffix)) return std::nullopt;
  const Metadata metadata = index ? read_shard_index(file).metadata : SafetensorsFile(file).metadata();
  const auto found = metadata.find(kKey);
  if (found == metadata.end()) return std::nullopt;
  const nlohmann::json held = parse_json(found->second, file + ": " + kKey, kLimits);
  return held.is_string() ? std::optional(held.get<std::string>()) : std::nullopt;
}

Tokeniser load_stored_tokeniser(const std::string& path) {
  const auto stored = stored_tokeniser(path);
  if (stored && *stored != kBytesTokeniser) return Tokeniser::from_definition(*stored, path + ": tokenizer");
  if (stored) fail(path, " holds no tokeniser: its model reads bytes");
  if (path.ends_with(kSuffix)) fail(path, " holds no tokeniser: its task reads no texts");
  fail(path, " holds no tokeniser: tokenizer.json, vocab.json with merges.txt, tokenizer.model, ",
       "or the weights of a run");
}

}  // namespace tessera
