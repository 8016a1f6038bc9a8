#include "cli/base/kept_temperature.h"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "data/base/chosen_samples.h"
#include "eval/predictions.h"
#include "io/files/file.h"
#include "io/weights/safetensors.h"
#include "io/weights/weight_file.h"
#include "open/load.h"
#include "open/open_task.h"
#include "open/ready_task.h"

namespace tessera::cli {
namespace {

constexpr const char* kFits = "temperature_fits";

std::string print_of(const data::Source& set) {
  std::ostringstream out;
  out << std::hex << set.fingerprint();
  return out.str();
}

// Files of an earlier version contain only the number.
std::vector<TemperatureFit> fits_in(const Value& metadata, const std::string& file) {
  const Value* list = metadata.find(kFits);
  if (!list)
    return metadata.find("temperature") ? std::vector<TemperatureFit>(1) : std::vector<TemperatureFit>();
  if (!list->is_array()) fail(file, ": tessera.", kFits, " is ", list->type_name(), ", must be an array");
  std::vector<TemperatureFit> fits;
  try {
    for (const Value& entry : list->as_array()) fits.push_back(read_config<TemperatureFit>(entry, kFits));
  } catch (const Error& error) {
    fail(file, ": metadata: ", error.what());
  }
  return fits;
}

}  // namespace

std::vector<int64_t> fitted_images(const Value& task_metadata, const data::Source& set,
                                   const std::string& file) {
  const std::vector<TemperatureFit> fits = fits_in(task_metadata, file);
  if (fits.empty()) return {};
  const std::string print = print_of(set);
  std::vector<bool> taken(static_cast<size_t>(set.size()));
  for (const TemperatureFit& fit : fits) {
    if (fit.data != print) continue;
    std::vector<bool> out_of_it = taken;
    for (const int64_t i : fit.unreadable)
      if (i < set.size()) out_of_it[static_cast<size_t>(i)] = true;
    std::vector<int64_t> left;
    for (int64_t i = 0; i < set.size(); ++i)
      if (!out_of_it[static_cast<size_t>(i)]) left.push_back(i);
    for (const int64_t place : eval::temperature_samples(
             std::ssize(left), {.temperature_share = fit.share, .seed = static_cast<uint64_t>(fit.seed)}))
      taken[static_cast<size_t>(left[static_cast<size_t>(place)])] = true;
  }
  std::vector<int64_t> out;
  for (int64_t i = 0; i < set.size(); ++i)
    if (taken[static_cast<size_t>(i)]) out.push_back(i);
  return out;
}

std::shared_ptr<const data::Source> without_fitted(std::shared_ptr<const data::Source> set,
                                                   const std::vector<DescribedWeights>& weights,
                                                   std::vector<std::string>& notes) {
  std::vector<bool> fitted(static_cast<size_t>(set->size()));
  for (const DescribedWeights& one : weights) {
    const std::vector<TemperatureFit> fits = fits_in(one.info.task_metadata, one.file);
    if (std::any_of(fits.begin(), fits.end(), [](const TemperatureFit& fit) { return fit.data.empty(); }))
      notes.push_back(text(
          one.file, " has no record of the images that its temperature was fitted on: measure it on others"));
    const std::vector<int64_t> images = fitted_images(one.info.task_metadata, *set, one.file);
    if (images.empty()) continue;
    for (const int64_t image : images) fitted[static_cast<size_t>(image)] = true;
    notes.push_back(text(one.file, ": its temperature was fitted on ", images.size(), " of the ",
                         counted(set->size(), "image"), ", which are left out"));
  }
  std::vector<int64_t> rest;
  for (int64_t i = 0; i < set->size(); ++i)
    if (!fitted[static_cast<size_t>(i)]) rest.push_back(i);
  const int64_t out = set->size() - std::ssize(rest);
  if (out == 0) return set;
  if (rest.empty())
    fail_usage(set->describe(),
               ": temperatures of these weights were fitted on all of it: measure on another set");
  const std::string described =
      text(set->describe(), ", without ", out,
           out == 1 ? " that a temperature was" : " that temperatures were", " fitted on");
  return std::make_shared<data::ChosenSamples>(std::move(set), std::move(rest), described);
}

TemperatureFit fit_on(const data::Source& whole, const data::Source& measured,
                      const tasks::ScoredSamples& scored, double share, int64_t seed) {
  TemperatureFit fit{.data = print_of(whole), .share = share, .seed = seed};
  const auto* chosen = ability_of<data::ChosenSamples>(measured);
  size_t row = 0;  // rows are in the order of the source
  for (int64_t i = 0; i < measured.size(); ++i) {
    if (row < scored.rows.size() && scored.rows[row].index == i)
      ++row;
    else
      fit.unreadable.push_back(chosen ? chosen->index_in_whole(i) : i);
  }
  return fit;
}

void keep_temperature(const std::string& keep, const DescribedWeights& weights, double fitted,
                      const TemperatureFit& fit) {
  const WeightFile file(weights.file);
  train::WeightsInfo info = weights.info;
  std::vector<TemperatureFit> fits = fits_in(info.task_metadata, weights.file);
  fits.push_back(fit);
  Value::Array written;
  for (const TemperatureFit& one : fits) written.push_back(write_config(one));
  const Value* before = info.task_metadata.find("temperature");
  const double temperature = fitted * (before ? before->as_double() : 1);
  info.task_metadata.set("temperature", temperature);
  info.task_metadata.set(kFits, std::move(written));
  const auto meta = train::meta_task(info, file);
  std::vector<torch::Tensor> kept;
  const train::StoredTensors stored = train::stored_for(*meta, file.tensors(), /*ours=*/true, file.path());
  write_safetensors(keep, train::views_of(train::match_weights(*meta, stored), kept),
                    train::weights_metadata(info));
  std::cerr << one_line(keep) << ": the weights with temperature " << fixed(temperature, 4) << "\n";
}

std::string search_end(double temperature) {
  constexpr double kNear = 1.001;  // a bisection ends near the end of its range
  const bool lowest = eval::kLowestTemperature * kNear > temperature;
  const bool highest = temperature > eval::kHighestTemperature / kNear;
  if (!lowest && !highest) return "";
  return text("the fitted temperature ", lowest ? eval::kLowestTemperature : eval::kHighestTemperature,
              " is the ", lowest ? "lower" : "upper",
              " end of its search: on the images set aside the scores are ",
              lowest ? "right and cannot be too sure; set a larger share aside"
                     : "no better than chance, and no temperature calibrates them");
}

}  // namespace tessera::cli
