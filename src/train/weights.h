// Weight files: safetensors under the published parameter names, with all that is needed to use them in the
// metadata.
//
//   tessera.model         JSON: {"name", "family", "settings"}
//   tessera.task          the task's name
//   tessera.preprocess    JSON: size, crop, interpolation, mean, std, apply_exif
//   tessera.recipe        TOML: the resolved recipe of the run that made the weights
//   tessera.quantization  JSON: weights, activations: bits; only where there is quantisation
//   tessera.KEY           JSON: what the task says of itself, such as tessera.class_names
#pragma once

#include "ops/torch.h"

#include <string>
#include <vector>

#include "data/transform.h"
#include "io/safetensors.h"
#include "io/weight_file.h"
#include "models/model.h"
#include "train/ema.h"
#include "train/quantise.h"

namespace tessera::train {

// What the metadata say.
struct WeightsInfo {
  models::ModelSpec model;
  Value task;           // [task], complete; of the first task of the registry in files of other programs
  Value task_metadata;  // Task::metadata
  data::Preprocess preprocess;
  QuantizationConfig quantization;
  std::string recipe;  // TOML, "" in files of other programs
  bool ours = false;   // the metadata are Tessera's
};

// How a file stores the elements of a tensor; an error that names it where safetensors has no such type.
DType element_type(const torch::Tensor& tensor, const std::string& name);

// Writes tensors of any device in their own dtype. Returns the file's XXH3-64.
std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});
std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info);
Metadata weights_metadata(const WeightsInfo& info);
// `name` in front of errors. Metadata of another program give ours = false.
WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name);

// A tensor of our own from a view of a file's bytes.
torch::Tensor to_tensor(const TensorView& view);
NamedTensors read_tensors(const SafetensorsFile& file);
NamedTensors read_tensors(const WeightFile& file);
// Copies by name; a tensor that is missing, unknown or of another shape is an error that names it and
// `where`.
void copy_tensors(const NamedTensors& from, const NamedTensors& to, const std::string& where);

}  // namespace tessera::train
