// From a file of weights into a model, by name. Nothing is silent: what does not fit is an error or a line.
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
  std::vector<std::string> fresh;     // parameters that kept their first values (a new head)
  std::vector<std::string> reshaped;  // those of them, but for outputs, that the file has in another shape
  std::vector<std::string> neutral;   // parameters that the file has not, whose first values change nothing
  std::vector<std::string> kept_outputs;  // parameters of an old head that stay, since their shapes fit
  std::vector<std::string> left_over;     // tensors of the file that were not used
  std::vector<std::string> interpolated;  // "pos_embed [1, 197, 384] to [1, 65, 384]"
  // For people: "loaded 150 tensors from F (safetensors)", "new head for 2 classes (cat, dog): head.weight,
  // head.bias", "begin anew, of another shape in the file: …", "positions interpolated: …", "not in the file, of no effect
  // at first: …", "not used: …".
  std::vector<std::string> lines;
};

// The file's tensors by the task's names. `ours`: of a file of this program, whose names must not be taken for another's.
StoredTensors stored_for(const tasks::Task& task, const std::vector<TensorView>& views, bool ours,
                         const std::string& path);
// The same in the task's order (one on the meta device will do). Throws Error that names the first tensors that are missing,
// left over or of another shape, and their numbers.
std::vector<const StoredTensor*> match_weights(const tasks::Task& task, const StoredTensors& stored);

// Exactly the file's tensors into exactly the task's parts.
LoadReport load_weights(tasks::Task& task, const WeightFile& file);

// For fine-tuning. Positions are interpolated to this model's grid; everything else of the backbones must be in the
// file, but for what has no effect at first (models::NeutralParameters). What the task adds to them is taken where the
// file has it for the same outputs, else it keeps its first values.
LoadReport load_pretrained(tasks::Task& task, const WeightFile& file);

// "not of the model: 2 tensors (loss.weight, …), …": what such a file holds besides the model; "" where it is nothing. With
// the family of a classifier also what belongs to another part of the file, as CLIP's text tower does.
std::string beside_line(const WeightFile& file, const std::string& family);

// Registered sizes that have exactly these tensors, by name and shape, but for the head. Of several that are
// the same model under two names only the first.
std::vector<std::string> sizes_that_fit(const std::vector<TensorView>& tensors);

// Families to which most of these names belong: the file may hold a model of them with settings of its own.
// None: it holds another kind of model.
std::vector<std::string> families_alike(const std::vector<TensorView>& tensors);

}  // namespace tessera::train
