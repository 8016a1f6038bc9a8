// A trained task ready for use from a file, a checkpoint or a run.
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

// Data that a task is measured on; null where it only computes.
using SharedSource = std::shared_ptr<const data::Source>;

// In evaluation mode on the CPU.
struct OpenedTask {
  std::unique_ptr<tasks::Task> task;
  WeightsInfo info;
  std::string file;                // the weights file that was read
  std::vector<std::string> notes;  // for people: positions interpolated, a model told by its tensors
};
struct OpenOptions {
  std::string model = {};  // size name, for files of other programs
  std::string key = {};    // PyTorch archives: which dictionary, "" = the usual one
  bool raw = false;        // checkpoints: the raw weights even where there is a moving average
  // Input side other than the trained one: positions follow by interpolation. 0 = as trained.
  int64_t size = 0;
  // Laid over the settings in the file: what changes no tensor, such as the base of rotary positions.
  Value settings = {};
  double crop = 0;                            // test crop instead of the file's; 0 = as it says
  std::vector<std::string> class_names = {};  // instead of the file's; empty = as it says
  // Of models of images and texts in other programs' files: their tokeniser, where none lies beside them.
  std::string tokenizer = {};
  SharedSource validation = nullptr;
};
// `path` is a file of weights in any form (safetensors, index.json, PyTorch archive), a checkpoint directory,
// a run directory (model.safetensors, else best.safetensors, else the newest valid checkpoint), or a folder of
// a model hub (model.safetensors, its index or pytorch_model.bin).
OpenedTask open_task(const std::string& path, const OpenOptions& options = {});

// The weights file that such a path stands for.
std::string weights_file_of(const std::string& path, bool raw = false);

// "size 224, crop 0.875, …": how images are prepared, for people.
std::string preprocess_text(const data::Preprocess& preprocess);

// What a file holds. Files of Tessera say so; for others it is the model of that name, or without a name that
// of the config.json beside it (hub_config.h), or the one registered size that has these tensors, with as many
// classes as its head has rows, ImageNet's names where there are as many as ImageNet's, and the preprocessing
// that its published weights were measured with. A usage error where none of it tells; a failure where the
// tensors are of no family at all.
// Published models of images and texts (published_pair.h) are opened as task clip, with this tokeniser.
WeightsInfo describe_weights(const WeightFile& file, const std::string& model = "",
                             const std::string& tokenizer = "");

// How the images of a file's weights were prepared: as it says, else as published for the model of that name.
data::Preprocess preprocess_of(const WeightFile& file, const std::string& model);

// How many classes a described file's model tells apart; 0 of one without a head for classes.
int64_t class_count(const WeightsInfo& info);

// Gives a described file these class names, of which there must be as many as it has classes.
void name_classes(WeightsInfo& info, const std::vector<std::string>& names, const std::string& file);

// The task of the metadata without memory for its weights: names and shapes, with the steps of what is
// quantised; of a file those of calibration too.
std::unique_ptr<tasks::Task> meta_task(const WeightsInfo& info);
std::unique_ptr<tasks::Task> meta_task(const WeightsInfo& info, const WeightFile& file);

// The task of a file, as it was described, in evaluation mode.
std::unique_ptr<tasks::Task> read_task(const WeightFile& file, const WeightsInfo& info,
                                       const SharedSource& validation = nullptr);

// Opens other weights for tasks.
std::shared_ptr<const tasks::WeightsOpener> weights_opener();
// A VAE, whose path may be a run too.
OpenedCodec open_codec(const std::string& path);

}  // namespace tessera::train
