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

#include <string>

#include "data/transforms/transform.h"
#include "models/base/model.h"
#include "weights/quantise.h"
#include "weights/tensors.h"

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

// Returns the XXH3-64 of the file.
std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info);
Metadata weights_metadata(const WeightsInfo& info);
// `name` in front of errors. Metadata of another program give ours = false.
WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name);

}  // namespace tessera::train
