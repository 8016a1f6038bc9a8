// What commands that measure trained weights on a data set let their user say alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/base/arguments.h"
#include "data/base/source.h"
#include "data/loading/loader.h"
#include "open/weights.h"

namespace tessera::cli {

struct MeasureOptions {
  std::string model, device = "auto", precision = "fp32";
  data::SourceConfig data;  // what --data and --val-data say, else empty
  int64_t batch = 64, threads = 0, loader_threads = 1;
  bool raw = false;
};

// --data, --val-data, --raw, --model, --batch-size, --loader-threads, --device, --precision, --threads.
void add_measure_options(Arguments& command, MeasureOptions& options);

// A file of weights with what it holds.
struct DescribedWeights {
  std::string weights;  // as the command line names it
  std::string file;
  train::WeightsInfo info;
};
std::vector<DescribedWeights> describe_all(const std::vector<std::string>& weights, const std::string& model,
                                           bool raw);

// The data of the run that made the weights; an empty path where they do not say.
data::SourceConfig data_of_run(const std::string& weights, const train::WeightsInfo& info);

// Names every image that was left out, and fails if there is one: `images` are all that were asked for.
void fail_on_broken(const data::BadImages& broken, int64_t images);

}  // namespace tessera::cli
