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
