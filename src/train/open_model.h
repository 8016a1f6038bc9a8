// A model ready for use from a file, a checkpoint or a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weight_file.h"
#include "models/model.h"
#include "train/weights.h"

namespace tessera::train {

// In evaluation mode on the CPU.
struct OpenedModel {
  std::shared_ptr<models::Backbone> model;
  WeightsInfo info;
  std::string file;  // the weights file that was read
  std::vector<std::string>
      notes;  // what people should know: positions interpolated, a model told by its tensors
};
struct OpenOptions {
  std::string model = {};  // size name, for files of other programs
  bool raw = false;        // checkpoints: the raw weights even where there is a moving average
  // Input side other than the trained one: positions follow by interpolation. 0 = as trained.
  int64_t size = 0;
  // Laid over the settings in the file: what changes no tensor, such as the base of rotary positions.
  Value settings = {};
};
// `path` is a file of weights in any form (safetensors, index.json, PyTorch archive), a checkpoint directory,
// or a run directory (model.safetensors, else best.safetensors, else the newest valid checkpoint).
OpenedModel open_model(const std::string& path, const OpenOptions& options = {});

// "size 224, crop 0.875, …": how pictures are prepared, for people.
std::string preprocess_text(const data::Preprocess& preprocess);

// What a file holds. Files of Tessera say so; for others it is the model of that name, or without a name the
// one registered size that has these tensors, with as many classes as its head has rows, and the
// preprocessing that its published weights were measured with. A usage error where neither tells.
WeightsInfo describe_weights(const WeightFile& file, const std::string& model = "");

// Names and shapes of such a model, with the steps of what is quantised; of a file those of calibration too.
std::shared_ptr<models::Backbone> sketch_of(const WeightsInfo& info);
std::shared_ptr<models::Backbone> sketch_of(const WeightsInfo& info, const WeightFile& file);

// The model of a file, as it was described, in evaluation mode.
std::shared_ptr<models::Backbone> read_model(const WeightFile& file, const WeightsInfo& info);

}  // namespace tessera::train
