// From a file of weights into a model, by name. Nothing is silent: what does not fit is an error or a line.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "io/weight_file.h"
#include "models/model.h"

namespace tessera::train {

struct LoadReport {
  int64_t loaded = 0;                     // tensors taken from the file
  std::vector<std::string> fresh;         // parameters that kept their first values (a new head)
  std::vector<std::string> left_over;     // tensors of the file that were not used
  std::vector<std::string> interpolated;  // "pos_embed [1, 197, 384] to [1, 65, 384]"
  // For people: "loaded 150 tensors from F (safetensors)", "new head for 2 classes (cat, dog): head.weight,
  // head.bias", "positions interpolated: …", "not used: …".
  std::vector<std::string> lines;
};

// The file's tensors under the model's names, in the model's order (a sketch will do): missing, left-over and
// wrongly shaped ones are an error that names the first few and their number.
std::vector<TensorView> match_weights(const models::Backbone& model, const models::ModelSpec& spec,
                                      const WeightFile& file);

// Exactly the file's tensors into exactly the model's.
LoadReport load_weights(models::Backbone& model, const models::ModelSpec& spec, const WeightFile& file);

// For fine-tuning. The head stays as it is where the file was made for other classes, positions are
// interpolated to this model's grid; everything else of the model must be in the file.
LoadReport load_pretrained(models::Backbone& model, const models::ModelSpec& spec,
                           const std::vector<std::string>& class_names, const WeightFile& file);

// The tensors' names as the family's models have them, in the same order (models::our_names).
std::vector<std::string> our_names(const std::vector<TensorView>& tensors, const models::Family& family);

// Parameters of the class head: those that a new head for so many classes replaces. The head is drawn from
// the model's seed again, so it is what it was before.
std::set<std::string> head_names(models::Backbone& model, int64_t classes);

// Registered sizes that have exactly these tensors, by name and shape, but for the head. Of several that are
// the same model under two names only the first.
std::vector<std::string> sizes_that_fit(const std::vector<TensorView>& tensors);

}  // namespace tessera::train
