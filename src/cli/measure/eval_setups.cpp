#include "cli/measure/eval_setups.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "recipe/recipe_files.h"
#include "tasks/base/inputs.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kModelSection = "model.";
// True for a setting that the model has, such as "model.rope_ntk", and for keys outside the model.
bool knows(const DescribedWeights& weights, const std::string& key) {
  return !key.starts_with(kModelSection) ||
         weights.info.model.settings.find(key.substr(kModelSection.size())) != nullptr;
}

void add_keys(const Value& table, const std::string& before, std::vector<std::string>& keys) {
  for (const auto& [key, value] : table.as_table()) {
    keys.push_back(before + key);
    if (value.is_table()) add_keys(value, before + key + ".", keys);
  }
}

void check_keys(const VariedSettings& varied, const std::vector<DescribedWeights>& weights) {
  for (const auto& [name, value] : varied) {
    const std::string& key = name;
    if (std::any_of(weights.begin(), weights.end(), [&](const auto& one) { return knows(one, key); }))
      continue;
    std::vector<std::string> known;
    for (const DescribedWeights& one : weights) add_keys(one.info.model.settings, "", known);
    const auto near = nearest(key.substr(kModelSection.size()), known);
    fail_usage(
        "--vary ", printable(key), ": ",
        weights.size() > 1 ? "none of these models has such a setting" : "the model has no such setting",
        near ? text(", did you mean '", kModelSection, *near, "'?") : "");
  }
}

// Returns all combinations; settings that these weights lack keep their values.
std::vector<VariedSettings> varied_for(const DescribedWeights& weights, std::vector<VariedSettings> all) {
  std::vector<VariedSettings> out;
  for (VariedSettings& one : all) {
    for (auto& [key, value] : one)
      if (!knows(weights, key)) value = kUnvaried;
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(std::move(one));
  }
  return out;
}

// Returns why a model with these settings cannot process images of this side; "" if it can.
std::string refusal_of_side(const models::Family& family, Value settings, int64_t side) {
  settings.set("image_size", side);
  try {
    family.resolve(settings);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void check_side(const models::Family& family, const Value& settings, int64_t size) {
  constexpr int64_t kFarthest = 1024;  // the largest patch
  const std::string why = refusal_of_side(family, settings, size);
  if (why.empty()) return;
  for (int64_t apart = 1; apart <= kFarthest; ++apart)
    for (const int64_t side : {size - apart, size + apart})
      if (side >= 1 && side <= kMostPixels && refusal_of_side(family, settings, side).empty())
        fail_usage("--size ", size, ": ", why, "; the nearest size that works is ", side);
  fail_usage("--size ", size, ": ", why);
}

// The same check as on opening the weights, but before anything is read.
void check_setup(const EvalSetup& setup, const train::WeightsInfo& info) {
  const models::Family& family = models::find_family(info.model.family);
  Value settings = info.model.settings;
  if (!setup.model_settings.as_table().empty()) {
    merge(settings, setup.model_settings);
    settings = family.resolve(settings);
  }
  if (!settings.find("image_size")) return;
  for (const int64_t size : setup.sizes)
    if (size != info.preprocess.size) check_side(family, settings, size);
}

}  // namespace

std::vector<EvalSetup> setups_of(const SetupRequest& request, const std::string& precision,
                                 const std::vector<DescribedWeights>& weights) {
  const std::vector<VariedSettings> all = vary(request.varied);
  check_keys(all.at(0), weights);
  const std::vector<int64_t> sizes =
      request.sizes.empty() ? std::vector<int64_t>() : parse_sides("--size", request.sizes);
  std::vector<EvalSetup> out;
  for (size_t w = 0; w < weights.size(); ++w)
    for (const VariedSettings& varied : varied_for(weights[w], all)) {
      EvalSetup setup{
          .weights = w, .settings = varied, .precision = precision, .model_settings = {}, .sizes = sizes};
      std::vector<std::string> settings = request.settings;
      for (const auto& [key, value] : varied) {
        if (value == kUnvaried) continue;
        if (key == "precision") {
          tasks::parse_precision(value);  // checked before the work
          setup.precision = value;
        } else {
          settings.push_back(key + "=" + value);
        }
      }
      setup.model_settings = parse_model_settings(settings);
      if (sizes.empty()) setup.sizes = {weights[w].info.preprocess.size};
      check_setup(setup, weights[w].info);
      out.push_back(std::move(setup));
    }
  return out;
}

RowColumns columns_of(const std::vector<EvalSetup>& setups, const std::vector<DescribedWeights>& weights) {
  RowColumns columns;
  for (const DescribedWeights& one : weights) columns.weights.push_back(one.weights);
  for (const EvalSetup& setup : setups) {
    columns.varied.resize(setup.settings.size());
    for (size_t k = 0; k < setup.settings.size(); ++k) {
      columns.varied[k].first = setup.settings[k].first;
      if (setup.settings[k].second.size() > columns.varied[k].second.size())
        columns.varied[k].second = setup.settings[k].second;
    }
  }
  return columns;
}

}  // namespace tessera::cli
