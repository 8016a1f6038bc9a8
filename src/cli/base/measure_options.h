// Options of commands that measure trained weights on a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/base/common.h"
#include "data/base/source.h"
#include "data/loading/loader.h"
#include "open/weights.h"

namespace tessera::cli {

struct MeasureOptions : ComputeOptions {
  std::string model;
  data::SourceConfig data;  // of --data and --val-data, else empty
  int64_t batch = 64, loader_threads = 1;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("data", data.path, "the images (default: the data of the run's recipe)");
    v("val_data", data.val_path, "the validation set, if it has a path of its own");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, {.range = between(1, 65536), .names = "--batch"}, "images at a time");
    v("loader_threads", loader_threads, between(1, 256), "decoding threads");
    ComputeOptions::visit(v);
  }
};

// A file of weights with its description.
struct DescribedWeights {
  std::string weights;  // as the command line names it
  std::string file;
  train::WeightsInfo info;
};
std::vector<DescribedWeights> describe_all(const std::vector<std::string>& weights, const std::string& model,
                                           bool raw);

// Returns the data of the run that made the weights; an empty path if they do not record it.
data::SourceConfig data_of_run(const std::string& weights, const train::WeightsInfo& info);

// Prints every image that was left out and fails if there is one; `images` is the number of all images.
void fail_on_broken(const data::BadImages& broken, int64_t images);

}  // namespace tessera::cli
