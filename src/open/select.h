// Initial weights cut from a larger model: weight selection (Xu et al. 2024, "Initializing models with larger
// ones"). The source is a model of the same family, or LLaMA's decoder for iLLaMA.
#pragma once

#include "io/weights/weight_file.h"
#include "models/base/model.h"
#include "open/load.h"

namespace tessera::train {

// Cuts each parameter that the file has under its name, or under LLaMA's (Meta's or Hugging Face's), to this
// model's shape along each axis. Takes the first blocks of a deeper model. Parameters missing in the file,
// and the head, keep their initial values: `fresh` of the report. Throws an error if no parameter is in the
// file, or if a tensor is smaller than the model's.
LoadReport select_pretrained(models::Backbone& model, const models::ModelSpec& spec, const WeightFile& file);

}  // namespace tessera::train
