// Opens a trained task, ready for use, from a file, a checkpoint or a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weights/weight_file.h"
#include "open/weights.h"
#include "tasks/base/registry.h"
#include "weights/open_codec.h"

namespace tessera::train {

// Data to evaluate a task on; null if it only computes.
using SharedSource = std::shared_ptr<const data::Source>;

// In evaluation mode on the CPU.
struct OpenedTask {
  std::unique_ptr<tasks::Task> task;
  WeightsInfo info;
  std::string file;                // the weights file that was read
  std::vector<std::string> notes;  // for people: positions interpolated, a model recognised by its tensors
};
struct OpenOptions {
  std::string model = {};  // size name, for files of other programs
  std::string key = {};    // PyTorch archives: the dictionary to read, "" = the usual one
  bool raw = false;        // checkpoints: raw weights even if there is a moving average
  // Input side; 0 = as trained. Another side interpolates positions.
  int64_t size = 0;
  // Overrides of settings in the file that change no tensor, such as the base of rotary positions.
  Value settings = {};
  double crop = 0;                            // test crop; 0 = the file's
  std::vector<std::string> class_names = {};  // empty = the file's
  // The tokeniser of image-text models from other programs; "" = the file next to them.
  std::string tokenizer = {};
  SharedSource validation = nullptr;
};
// Opens `path`: a weights file in any form (safetensors, index.json, PyTorch archive), a checkpoint
// directory, a run directory (model.safetensors, else best.safetensors, else the newest valid checkpoint), or
// a folder of a model hub (model.safetensors, its index or pytorch_model.bin), also in its cache (snapshots/).
OpenedTask open_task(const std::string& path, const OpenOptions& options = {});

// Returns the weights file of such a path.
std::string weights_file_of(const std::string& path, bool raw = false);

// Returns the preprocessing of images for people: "size 224, crop 0.875, …".
std::string preprocess_text(const data::Preprocess& preprocess);

// Describes the content of a file. Files of Tessera record it. Otherwise the model is `model`, else that of
// the config.json next to the file (hub_config.h), else the one registered size with these tensors. The
// number of classes is the number of rows of its head. Class names are those of config.json or ImageNet if
// their number matches. Preprocessing is that of the published weights. Throws a usage error if the model
// remains unknown, Error if the tensors belong to no family. Published models of images and texts
// (published_pair.h) are opened as tasks clip and coca, with this tokeniser.
// Adds lines for people to `notes`.
WeightsInfo describe_weights(const WeightFile& file, const std::string& model = "",
                             const std::string& tokenizer = "", std::vector<std::string>* notes = nullptr);

// Returns the image preprocessing in the file, else the published one of the model of that name.
data::Preprocess preprocess_of(const WeightFile& file, const std::string& model);

// Returns the number of classes of a described file; 0 without a class head.
int64_t class_count(const WeightsInfo& info);

// Sets the class names of a described file. Throws a usage error unless each class has one.
void name_classes(WeightsInfo& info, const std::vector<std::string>& names, const std::string& file);

// Builds the task without memory for its weights: only names and shapes, including the step sizes of
// quantised layers. With a file, includes those from calibration.
std::unique_ptr<tasks::Task> meta_task(const WeightsInfo& info);
std::unique_ptr<tasks::Task> meta_task(const WeightsInfo& info, const WeightFile& file);

// Reads the task of a file, as described, in evaluation mode. Adds lines for people to `notes`.
std::unique_ptr<tasks::Task> read_task(const WeightFile& file, const WeightsInfo& info,
                                       const SharedSource& validation = nullptr,
                                       std::vector<std::string>* notes = nullptr);

// Returns an opener of other weights for tasks.
std::shared_ptr<const tasks::WeightsOpener> weights_opener();
// Opens a VAE; `path` may be a run.
OpenedCodec open_codec(const std::string& path);

}  // namespace tessera::train
