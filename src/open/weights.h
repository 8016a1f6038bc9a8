// Weight files: safetensors under the published parameter names, with all the metadata needed to use them.
//
//   tessera.model         JSON: {"name", "family", "settings"}
//   tessera.task          the task's name
//   tessera.preprocess    JSON: size, crop, interpolation, mean, std, apply_exif
//   tessera.recipe        TOML: the resolved recipe of the run that made the weights
//   tessera.quantization  JSON: weights, activations: bits; only if quantised
//   tessera.KEY           JSON: the task's own metadata, such as tessera.class_names
#pragma once

#include <string>

#include "data/transforms/transform.h"
#include "models/base/model.h"
#include "weights/load_tensors.h"
#include "weights/quantise.h"

namespace tessera::train {

// The content of the metadata.
struct WeightsInfo {
  models::ModelSpec model;
  Value task;           // complete [task]; for files of other programs, the first task in the registry
  Value task_metadata;  // Task::metadata
  data::Preprocess preprocess;
  QuantizationConfig quantization;
  std::string recipe;  // TOML, "" in files of other programs
  bool ours = false;   // the metadata are Tessera's
};

// Writes a weights file. Returns its XXH3-64.
std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info);
Metadata weights_metadata(const WeightsInfo& info);
// Reads metadata; errors begin with `name`. Metadata of another program give ours = false.
WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name);

}  // namespace tessera::train
