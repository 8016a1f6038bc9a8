#include "train/weights.h"

#include <cstring>
#include <map>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "io/file.h"
#include "train/json_value.h"

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

DType dtype_of(const torch::Tensor& tensor, const std::string& name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                            DType::i16, DType::i8, DType::u8, DType::boolean})
    if (scalar_type(dtype) == tensor.scalar_type()) return dtype;
  fail("tensor '", name, "': element type ", c10::toString(tensor.scalar_type()),
       " has no place in safetensors");
}

Value class_names_value(const std::vector<std::string>& names) {
  Value::Array items;
  for (const std::string& name : names) items.emplace_back(name);
  return items;
}

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

// --- writing

std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<torch::Tensor> kept;  // the views' memory
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor& plain = kept.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
    views.push_back({name,
                     dtype_of(plain, name),
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
                       {"tessera.class_names", json_text(class_names_value(info.class_names))},
                       {"tessera.preprocess", json_text(write_config(info.preprocess))},
                       {"tessera.task", "classify"},
                       {"tessera.multi_label", info.multi_label ? "true" : "false"},
                       {"tessera.recipe", info.recipe}};
  if (info.quantization.enabled())
    metadata["tessera.quantization"] = json_text(write_config(info.quantization));
  return metadata;
}

std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info) {
  return save_tensors(path, tensors, weights_metadata(info));
}

// --- reading

WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name) {
  WeightsInfo info;
  const std::string* model = entry(metadata, "tessera.model");
  if (!model) return info;
  info.ours = true;
  try {
    info.model = read_model_spec(*model, "tessera.model");
    if (const std::string* names = entry(metadata, "tessera.class_names")) {
      const Value list = parse_json_value(*names, "tessera.class_names");
      if (!list.is_array()) fail("tessera.class_names is ", list.type_name(), ", must be an array");
      for (const Value& item : list.as_array()) {
        if (!item.is_string()) fail("tessera.class_names holds ", item.type_name(), ", must hold strings");
        info.class_names.push_back(item.as_string());
      }
    }
    if (const std::string* preprocess = entry(metadata, "tessera.preprocess"))
      info.preprocess =
          read_config<data::Preprocess>(parse_json_value(*preprocess, "tessera.preprocess"), "preprocess");
    if (const std::string* bits = entry(metadata, "tessera.quantization"))
      info.quantization =
          read_config<QuantizationConfig>(parse_json_value(*bits, "tessera.quantization"), "quantization");
    if (const std::string* multi = entry(metadata, "tessera.multi_label"))
      info.multi_label = *multi == "true";
    if (const std::string* recipe = entry(metadata, "tessera.recipe")) info.recipe = *recipe;
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

NamedTensors read_tensors(const SafetensorsFile& file) {
  NamedTensors tensors;
  for (const TensorView& view : file.tensors()) tensors.emplace_back(view.name, to_tensor(view));
  return tensors;
}

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
