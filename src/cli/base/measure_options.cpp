#include "cli/base/measure_options.h"

#include <iostream>
#include <set>

#include "cli/base/common.h"
#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/weights/weight_file.h"
#include "open/open_task.h"
#include "open/run_data.h"
#include "recipe/recipe_files.h"

namespace tessera::cli {

std::vector<DescribedWeights> describe_all(const std::vector<std::string>& weights, const std::string& model,
                                           bool raw, const std::string& key) {
  std::vector<DescribedWeights> out;
  for (const std::string& one : weights) {
    const std::string file = train::weights_file_of(one, raw);
    out.push_back({one, file, train::describe_weights(WeightFile(file, key), model)});
  }
  return out;
}

data::SourceConfig data_of_run(const std::string& weights, const train::WeightsInfo& info) {
  if (info.recipe.empty()) return {};
  const Value recipe = parse_toml(info.recipe, weights);
  const Value* table = recipe.find("data");
  data::SourceConfig config;
  if (table) config = read_config<data::SourceConfig>(*table, "data");
  static std::set<std::string> printed;
  const std::string line = train::find_run_data(config, weights);
  if (!line.empty() && printed.insert(line).second) std::cerr << one_line(line) << "\n";
  return config;
}

void fail_on_broken(const data::BadImages& broken, int64_t images) {
  for (const std::string& line : broken.lines) std::cerr << "tessera: left out: " << one_line(line) << "\n";
  if (broken.count > 0) fail(broken.count, " of ", counted(images, "image"), " could not be decoded");
}

std::vector<int64_t> parse_sides(const std::string& option, const std::string& list) {
  std::vector<int64_t> sides;
  for (const std::string& part : split(list, ',')) {
    const auto side = parse_int(trim(part));
    if (!side || *side < 1 || *side > kMostPixels)
      fail_usage(option, ": '", part, "' is no side in pixels (1 to ", kMostPixels, "), as in 160,224,384");
    sides.push_back(*side);
  }
  return sides;
}

Value parse_model_settings(const std::vector<std::string>& settings) {
  Value all;
  for (const std::string& setting : settings) merge(all, train::parse_setting(setting));
  for (const auto& [section, values] : all.as_table())
    if (section != "model") fail_usage("--set ", section, ".…: only settings of the model, model.key=value");
  const Value* model = all.find("model");
  return model ? *model : Value();
}

}  // namespace tessera::cli
