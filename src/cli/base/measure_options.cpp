#include "cli/base/measure_options.h"

#include <iostream>

#include "cli/base/common.h"
#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/weights/weight_file.h"
#include "open/open_task.h"

namespace tessera::cli {

void add_measure_options(Arguments& command, MeasureOptions& options) {
  command.add("--data", options.data.path, "the images (default: the data of the run's recipe)");
  command.add("--val-data", options.data.val_path, "the validation set, where it is another path");
  command.flag("--raw", options.raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options.model, "model name, where weights of other programs do not tell");
  command.add("--batch-size,--batch", options.batch, "images at a time").show_default().range(1, 65536);
  command.add("--loader-threads", options.loader_threads, "decoding threads").show_default().range(1, 256);
  add_compute_options(command, options.device, options.precision, options.threads);
}

std::vector<DescribedWeights> describe_all(const std::vector<std::string>& weights, const std::string& model,
                                           bool raw) {
  std::vector<DescribedWeights> out;
  for (const std::string& one : weights) {
    const std::string file = train::weights_file_of(one, raw);
    out.push_back({one, file, train::describe_weights(WeightFile(file), model)});
  }
  return out;
}

data::SourceConfig data_of_run(const std::string& weights, const train::WeightsInfo& info) {
  if (info.recipe.empty()) return {};
  const Value recipe = parse_toml(info.recipe, weights);
  const Value* table = recipe.find("data");
  return table ? read_config<data::SourceConfig>(*table, "data") : data::SourceConfig{};
}

void fail_on_broken(const data::BadImages& broken, int64_t images) {
  for (const std::string& line : broken.lines) std::cerr << "tessera: left out: " << one_line(line) << "\n";
  if (broken.count > 0) fail(broken.count, " of ", counted(images, "image"), " could not be decoded");
}

}  // namespace tessera::cli
