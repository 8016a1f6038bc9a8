// Loads a weights file into a model, by name. No mismatch is silent: each is an error or a printed line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/weights/weight_file.h"
#include "models/base/model.h"
#include "tasks/base/task.h"
#include "weights/stored_tensors.h"

namespace tessera::train {

struct LoadReport {
  int64_t loaded = 0;                 // tensors taken from the file
  std::vector<std::string> fresh;     // parameters that kept their initial values (such as a new head)
  std::vector<std::string> reshaped;  // `fresh` ones, except outputs, that have another shape in the file
  std::vector<std::string> neutral;   // parameters missing in the file, as models::NeutralParameters allows
  std::vector<std::string> kept_outputs;  // parameters of an old head that were loaded: their shapes match
  std::vector<std::string> left_over;     // tensors of the file that were not used
  std::vector<std::string> interpolated;  // "pos_embed [1, 197, 384] to [1, 65, 384]"
  // For people: "loaded 150 tensors from F (safetensors)", "new head for 2 classes (cat, dog): head.weight,
  // head.bias", "initialised, of another shape in the file: …", "positions interpolated: …", "not in the file,
  // first values kept: …", "not used: …".
  std::vector<std::string> lines;
};

// Returns the file's tensors under the task's names. `ours`: it is a Tessera file, so its names need no
// translation.
StoredTensors stored_for(const tasks::Task& task, const std::vector<TensorView>& views, bool ours,
                         const std::string& path);
// Returns the tensors in the task's order; the task may be on the meta device. Throws Error with the first
// tensors that are missing, left over or of another shape, and their counts.
std::vector<const StoredTensor*> match_weights(const tasks::Task& task, const StoredTensors& stored);

// Loads the file's tensors into the task's parts; both must have the same names.
LoadReport load_weights(tasks::Task& task, const WeightFile& file);

// Loads weights for fine-tuning. Positions are interpolated to this model's grid. The file must have all
// other parameters of the backbones, except those that models::NeutralParameters names.
// The task's additions to them are loaded if the file has them for the same outputs. Otherwise they keep
// their initial values.
LoadReport load_pretrained(tasks::Task& task, const WeightFile& file);

// Returns a line on the file's content outside the model, "not of the model: 2 tensors (loss.weight, …), …";
// "" if there is none. With the family of a classifier, includes other parts of the file, such as CLIP's text
// tower.
std::string beside_line(const WeightFile& file, const std::string& family);

// Returns registered sizes with exactly these tensors, by name and shape, except for the head. If several are
// the same model under different names, returns only the first.
std::vector<std::string> sizes_that_fit(const std::vector<TensorView>& tensors);

// Returns the families that have most of these names, since the file may contain such a model with custom
// settings. Empty if it contains another kind of model.
std::vector<std::string> families_alike(const std::vector<TensorView>& tensors);

// Initial weights cut from a larger model: weight selection (Xu et al. 2024, "Initializing models with larger
// ones"). The source is a model of the same family, or LLaMA's decoder for iLLaMA.

// Cuts each parameter that the file has under its name, or under LLaMA's (Meta's or Hugging Face's), to this
// model's shape along each axis. Takes the first blocks of a deeper model. Parameters missing in the file,
// and the head, keep their initial values: `fresh` of the report. Throws an error if no parameter is in the
// file, or if a tensor is smaller than the model's.
LoadReport select_pretrained(models::Backbone& model, const models::ModelSpec& spec, const WeightFile& file);

}  // namespace tessera::train
