#include <filesystem>

#include "core/error.h"
#include "io/files/file.h"
#include "open/weights.h"
#include "tests/parity/case.h"

namespace tessera::parity {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Metadata values are strings; most of them are JSON inside.
Json parsed(const Metadata& metadata) {
  Json out = Json::object();
  for (const auto& [key, value] : metadata) {
    Json inner = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    out[key] = inner.is_discarded() ? Json(value) : inner;
  }
  return out;
}

}  // namespace

const Json& Golden::config() const {
  static const Json empty = Json::object();
  const auto found = meta.find("config");
  return found == meta.end() ? empty : *found;
}

bool Golden::has(const std::string& tensor) const { return arrays && arrays->find(prefix + tensor); }

const TensorView& Golden::view(const std::string& tensor) const {
  const TensorView* found = arrays ? arrays->find(prefix + tensor) : nullptr;
  check(found != nullptr, name, ": no array '", prefix, tensor, "'");
  return *found;
}

torch::Tensor Golden::tensor(const std::string& tensor, torch::ScalarType dtype) const {
  const torch::Tensor value = train::to_tensor(view(tensor)).clone();
  return dtype != torch::ScalarType::Undefined && value.is_floating_point() ? value.to(dtype) : value;
}

std::vector<std::string> Golden::names(const std::string& start) const {
  std::vector<std::string> out;
  if (!arrays) return out;
  for (const TensorView& tensor : arrays->tensors())
    if (tensor.name.starts_with(prefix + start))
      out.push_back(tensor.name.substr(prefix.size() + start.size()));
  return out;
}

std::vector<std::string> Golden::parts() const {
  std::vector<std::string> out;
  for (const auto& [key, entry] : config().items()) out.push_back(key);
  return out;
}

Golden Golden::part(const std::string& part) const {
  Golden one{.folder = folder,
             .name = name + ", " + part,
             .meta = meta,
             .arrays = arrays,
             .directory = directory,
             .prefix = prefix + part + "/"};
  one.meta["config"] = config().value(part, Json::object());
  if (const auto mode = one.config().find("mode"); mode != one.config().end()) one.meta["mode"] = *mode;
  one.meta.erase("errors_fp32_vs_fp64");
  return one;
}

Golden read_golden(const std::string& root, const std::string& folder, const std::string& name) {
  Golden golden{
      .folder = folder, .name = name, .meta = {}, .arrays = nullptr, .directory = root + "/" + folder};
  const std::string stem = golden.directory + "/" + name;
  if (fs::exists(stem + ".safetensors"))
    golden.arrays = std::make_shared<SafetensorsFile>(stem + ".safetensors");
  if (fs::exists(stem + ".json"))
    golden.meta = Json::parse(read_text(stem + ".json"));
  else
    golden.meta = parsed(golden.arrays->metadata());
  return golden;
}

}  // namespace tessera::parity
