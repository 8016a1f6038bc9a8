// Files of other programs that contain models of images and texts (weights/two_tower_published.h): OpenAI's
// and OpenCLIP's CLIP and CoCa, SigLIP, Hugging Face's CLIPModel and SiglipModel. They are opened as the
// tasks clip and coca.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

// BERT with a head for classes of texts, as transformers saves it (BertForSequenceClassification): opened as task bert.

// True if the folder's config.json names this class.
bool is_bert_classifier(PublishedFolder& folder);

// Describes the task. Its classes are those of `id2label`; without their names, those of the data. Throws a usage error for
// regression and several classes a text, and if the folder has no tokeniser.
WeightsInfo describe_bert_classifier(const WeightFile& file, PublishedFolder& folder);

// Loads all tensors of the task. Throws Error for missing ones and other shapes. Adds lines for people to `notes`.
void load_bert_classifier(tasks::Task& task, const WeightFile& file, std::vector<std::string>& notes);

}  // namespace tessera::train
