// First weights cut out of a larger model's: weight selection (Xu et al. 2024, "Initializing models with
// larger ones"), from a model of the same family or from LLaMA's decoder for iLLaMA.
#pragma once

#include "io/weights/weight_file.h"
#include "models/base/model.h"
#include "open/load.h"

namespace tessera::train {

// Every parameter that the file holds under its name, or under LLaMA's (Meta's or Hugging Face's), is cut to
// this model's shape along each axis; the first blocks of a deeper model are taken. What the file does not
// hold, and the head, keep their first values: `fresh` of the report. An error where the file gives nothing,
// or where a tensor of it is smaller than the model's.
LoadReport select_pretrained(models::Backbone& model, const models::ModelSpec& spec, const WeightFile& file);

}  // namespace tessera::train
