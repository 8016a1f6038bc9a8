// Weight files: safetensors under the published parameter names, with all that is needed to use them in the
// metadata.
//
//   tessera.model        JSON: {"name", "family", "settings"}
//   tessera.class_names  JSON: array of strings
//   tessera.preprocess   JSON: size, crop, interpolation, mean, std, apply_exif
//   tessera.recipe       TOML: the resolved recipe of the run that made the weights
//   tessera.task         "classify"; tessera.multi_label "true" or "false"
#pragma once

#include "ops/torch.h"

#include <memory>
#include <string>
#include <vector>

#include "data/transform.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "train/ema.h"

namespace tessera::train {

// What the metadata say.
struct WeightsInfo {
  models::ModelSpec model;
  std::vector<std::string> class_names;  // empty in files of other programs
  data::Preprocess preprocess;
  bool multi_label = false;
  std::string recipe;  // TOML, "" in files of other programs
  bool ours = false;   // the metadata are Tessera's
};

// Writes tensors of any device in their own dtype. Returns the file's XXH3-64.
std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});
std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info);
Metadata weights_metadata(const WeightsInfo& info);
// `name` in front of errors. Metadata of another program give ours = false.
WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name);

// A tensor of our own from a view of a file's bytes.
torch::Tensor to_tensor(const TensorView& view);
NamedTensors read_tensors(const SafetensorsFile& file);
// Copies by name; a tensor that is missing, unknown or of another shape is an error that names it and
// `where`.
void copy_tensors(const NamedTensors& from, const NamedTensors& to, const std::string& where);

// What loading did; nothing of it is silent.
struct LoadReport {
  int64_t loaded = 0;                     // tensors taken from the file
  std::vector<std::string> fresh;         // parameters that kept their first values (a new head)
  std::vector<std::string> left_over;     // tensors of the file that were not used
  std::vector<std::string> interpolated;  // "pos_embed [1, 197, 384] to [1, 65, 384]"
  // For people: "loaded 150 tensors from F", "new head for 10 classes: head.weight, head.bias", "positions
  // interpolated: …", "not used: …".
  std::vector<std::string> lines;
};

// Exactly the file's tensors into exactly the model's: missing, left-over and wrongly shaped ones are an
// error that names the first few and their number.
LoadReport load_weights(models::Backbone& model, const models::ModelSpec& spec, const std::string& path);

// For fine-tuning. The head stays as it is where the file was made for other classes, positions are
// interpolated to this model's grid; everything else of the model must be in the file.
LoadReport load_pretrained(models::Backbone& model, const models::ModelSpec& spec,
                           const std::vector<std::string>& class_names, const std::string& path);

// A model ready for use, in evaluation mode on the CPU.
struct OpenedModel {
  std::shared_ptr<models::Backbone> model;
  WeightsInfo info;
  std::string file;  // the weights file that was read
};
struct OpenOptions {
  std::string model = {};  // size name, for files of other programs
  bool raw = false;        // checkpoints: the raw weights even where there is a moving average
  // Input side other than the trained one: positions follow by interpolation. 0 = as trained.
  int64_t size = 0;
};
// `path` is a .safetensors file, a checkpoint directory, or a run directory (model.safetensors, else
// best.safetensors, else the newest valid checkpoint).
OpenedModel open_model(const std::string& path, const OpenOptions& options = {});

}  // namespace tessera::train
