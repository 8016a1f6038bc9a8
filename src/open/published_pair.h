// Files of other programs that hold models of images and texts (weights/two_tower_published.h): OpenAI's and OpenCLIP's
// CLIP and CoCa, SigLIP, Hugging Face's CLIPModel and SiglipModel. They are opened as the tasks clip and coca.
#pragma once

#include <optional>
#include <string>

#include "io/weights/weight_file.h"
#include "open/weights.h"
#include "tasks/base/task.h"
#include "weights/stored_tensors.h"
#include "weights/two_tower_published.h"

namespace tessera::train {

// What such a file holds; nothing for any other. A config.json or open_clip_config.json beside it says what the shapes
// leave open, and is believed. `notes` takes lines for people.
std::optional<models::PublishedTowers> published_pair(const WeightFile& file,
                                                      std::vector<std::string>& notes);

// The tensors of the file by their names in a task, whose backbone has no prefix.
StoredTensors stored_pair(const WeightFile& file, const models::PublishedTowers& towers);

// The preparation of images that such models are published with.
data::Preprocess preprocess_of_pair(const models::PublishedTowers& towers);

// The task, model and preparation of images that stand for it. The tokeniser is `tokenizer` where it is given, else a
// tokeniser's file beside the weights; without either the task reads images alone, and refuses texts.
WeightsInfo describe_pair(const models::PublishedTowers& towers, const WeightFile& file,
                          const std::string& tokenizer);

struct LoadReport;
// All tensors of the task from the file; an error names those that are missing, left over or of another shape.
LoadReport load_pair(tasks::Task& task, const WeightFile& file, const models::PublishedTowers& towers);

}  // namespace tessera::train
