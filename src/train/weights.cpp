#include "train/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "io/file.h"
#include "tasks/registry.h"
#include "train/json_value.h"
#include "train/migrate.h"

namespace tessera::train {
namespace {

torch::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return torch::kFloat64;
    case DType::f32:
      return torch::kFloat32;
    case DType::f16:
      return torch::kFloat16;
    case DType::bf16:
      return torch::kBFloat16;
    case DType::i64:
      return torch::kInt64;
    case DType::i32:
      return torch::kInt32;
    case DType::i16:
      return torch::kInt16;
    case DType::i8:
      return torch::kInt8;
    case DType::u8:
      return torch::kUInt8;
    case DType::boolean:
      return torch::kBool;
  }
  fail("unknown element type");
}

// Entries that are not the task's own.
constexpr std::array kCommon = {"tessera.model", "tessera.task", "tessera.preprocess", "tessera.recipe",
                                "tessera.quantization"};
constexpr std::string_view kPrefix = "tessera.";

const std::string* entry(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

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

DType element_type(const torch::Tensor& tensor, const std::string& name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                            DType::i16, DType::i8, DType::u8, DType::boolean})
    if (scalar_type(dtype) == tensor.scalar_type()) return dtype;
  fail("tensor '", name, "': element type ", c10::toString(tensor.scalar_type()),
       " has no place in safetensors");
}

// --- writing

std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<torch::Tensor> kept;  // the views' memory
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor& plain = kept.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
    views.push_back({name,
                     element_type(plain, name),
                     plain.sizes().vec(),
                     {static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}});
  }
  return write_safetensors(path, views, metadata);
}

Metadata weights_metadata(const WeightsInfo& info) {
  Value model;
  model.set("name", info.model.name);
  model.set("family", info.model.family);
  model.set("settings", info.model.settings);
  Metadata metadata = {{"format", "pt"},  // what readers of published weights expect
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

// --- reading

namespace {

// The recipe that the weights were trained by has the task's settings; a file without one has the defaults.
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
  const std::string* model = entry(metadata, "tessera.model");
  if (!model) return info;
  info.ours = true;
  try {
    info.model = read_model_spec(*model, "tessera.model");
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

torch::Tensor to_tensor(const TensorView& view) {
  torch::Tensor tensor = torch::empty(view.shape, torch::TensorOptions(scalar_type(view.dtype)));
  check(tensor.nbytes() == view.bytes.size(), "tensor '", view.name, "' has ", view.bytes.size(),
        " bytes, its shape ", c10::IntArrayRef(view.shape), " needs ", tensor.nbytes());
  if (!view.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

namespace {

NamedTensors copies_of(const std::vector<TensorView>& views) {
  NamedTensors tensors;
  for (const TensorView& view : views) tensors.emplace_back(view.name, to_tensor(view));
  return tensors;
}

}  // namespace

NamedTensors read_tensors(const SafetensorsFile& file) { return copies_of(file.tensors()); }
NamedTensors read_tensors(const WeightFile& file) { return copies_of(file.tensors()); }

void copy_tensors(const NamedTensors& from, const NamedTensors& to, const std::string& where) {
  const std::map<std::string, torch::Tensor> stored(from.begin(), from.end());
  const torch::NoGradGuard no_grad;
  for (const auto& [name, target] : to) {
    const auto found = stored.find(name);
    if (found == stored.end()) fail("'", where, "': tensor '", name, "' is missing");
    if (found->second.sizes() != target.sizes())
      fail("'", where, "': tensor '", name, "' is ", found->second.sizes(), ", must be ", target.sizes());
    torch::Tensor(target).copy_(found->second);
  }
  if (from.size() != to.size()) fail("'", where, "' has ", from.size(), " tensors, must have ", to.size());
}

}  // namespace tessera::train
