// Files of other programs that contain models of images and texts (weights/two_tower_published.h): OpenAI's
// and OpenCLIP's CLIP and CoCa, SigLIP, Hugging Face's CLIPModel and SiglipModel. They are opened as the
// tasks clip and coca.
#pragma once

#include <optional>
#include <string>

#include "io/weights/weight_file.h"
#include "open/weights.h"
#include "tasks/base/task.h"
#include "weights/published_folder.h"
#include "weights/stored_tensors.h"
#include "weights/two_tower_published.h"

namespace tessera::train {

// Describes such a file; nullopt for any other. A config.json or open_clip_config.json next to it adds
// details that shapes do not show, and takes precedence. `notes` collects lines for people.
std::optional<models::PublishedTowers> published_pair(const WeightFile& file,
                                                      std::vector<std::string>& notes);

// Returns the tensors of the file by their names in a task with an unprefixed backbone.
StoredTensors stored_pair(const WeightFile& file, const models::PublishedTowers& towers);

// Returns the image preprocessing in the folder, else the published one of such models.
data::Preprocess preprocess_of_pair(const models::PublishedTowers& towers, PublishedFolder& folder);

// Returns the equivalent task, model and image preprocessing. The tokeniser is `tokenizer` if given, else a
// tokeniser file next to the weights. Without either the task reads only images, and refuses texts.
WeightsInfo describe_pair(const models::PublishedTowers& towers, const WeightFile& file,
                          const std::string& tokenizer, PublishedFolder& folder);

struct LoadReport;
// Loads all tensors of the task. Throws an error that names those missing, left over or of another shape.
LoadReport load_pair(tasks::Task& task, const WeightFile& file, const models::PublishedTowers& towers);

}  // namespace tessera::train
