// Options of commands that measure trained weights on a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/base/common.h"
#include "core/options.h"
#include "data/base/source.h"
#include "data/loading/loader.h"
#include "open/weights.h"

namespace tessera::cli {

struct MeasureOptions : ComputeOptions {
  std::string model;
  data::SourceConfig data;  // paths of --data and --val-data, else empty
  int64_t batch = 64, loader_threads = 1;
  std::string key;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("data", data.path, "the images (default: the data of the run's recipe)");
    v("val_data", data.val_path, "the validation set, if it has a path of its own");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, {.range = between(1, 65536), .names = "--batch"}, "images at a time");
    v("loader_threads", loader_threads, between(1, 256), "decoding threads");
    ComputeOptions::visit(v);
  }
};

// A weights file with its description.
struct DescribedWeights {
  std::string weights;  // as written on the command line
  std::string file;
  train::WeightsInfo info;
};
std::vector<DescribedWeights> describe_all(const std::vector<std::string>& weights, const std::string& model,
                                           bool raw, const std::string& key);

// Returns the data of the run that made the weights; an empty path if they do not record it.
data::SourceConfig data_of_run(const std::string& weights, const train::WeightsInfo& info);

inline constexpr int64_t kMostPixels = 8192;  // of an image's side
// Returns the sides in a list such as "160,224,384". Throws a usage error that begins with `option`.
std::vector<int64_t> parse_sides(const std::string& option, const std::string& list);
// Returns the model settings in --set. Throws a usage error for any other settings.
Value parse_model_settings(const std::vector<std::string>& settings);

// Prints every image that was left out, and fails if there is one; `images` is the total number.
void fail_on_broken(const data::BadImages& broken, int64_t images);

// Options of commands that read a data set but no weights.
template <class V>
void visit_set(V& v, data::SourceConfig& source) {
  v("data", source.path, {.argument = "DATA", .required = true},
    "a folder, shards, a table, CIFAR or IDX files, shapes:…");
}

template <class V>
void visit_validation(V& v, data::SourceConfig& source) {
  v("val_data", source.val_path, "the validation set, if it has a path of its own");
  v("val_share", source.val_share, from_to_below(0, 1), "share for validation, if the data has no splits");
  v("image_root", source.image_root, "tables: base folder of relative paths");
  visit_class_order(v, source.class_order);
}

}  // namespace tessera::cli
