#include "eval/robustness.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"

namespace tessera::eval {

const CorruptionBaseline& alexnet_on_imagenet_c() {
  // The mean error over the five severities that the benchmark's code divides by.
  static const CorruptionBaseline table = {"AlexNet",
                                           {{"gaussian_noise", 0.886428},
                                            {"shot_noise", 0.894468},
                                            {"impulse_noise", 0.92264},
                                            {"defocus_blur", 0.81988},
                                            {"glass_blur", 0.826268},
                                            {"motion_blur", 0.785948},
                                            {"zoom_blur", 0.79836},
                                            {"snow", 0.866816},
                                            {"frost", 0.826572},
                                            {"fog", 0.819324},
                                            {"brightness", 0.564592},
                                            {"contrast", 0.853204},
                                            {"elastic_transform", 0.646056},
                                            {"pixelate", 0.71784},
                                            {"jpeg_compression", 0.6065}},
                                           0.43478};
  return table;
}

MeanCorruptionError mean_corruption_error(std::span<const CorruptionError> errors, double clean,
                                          const CorruptionBaseline& baseline) {
  check(!errors.empty(), "mean corruption error: no corruption was measured");
  MeanCorruptionError result;
  const auto n = static_cast<double>(errors.size());
  for (const CorruptionError& mine : errors) {
    const auto row = std::find_if(baseline.errors.begin(), baseline.errors.end(),
                                  [&](const auto& other) { return other.corruption == mine.corruption; });
    if (row == baseline.errors.end() || !(row->error > 0))
      fail("the baseline ", baseline.name, " has no error for '", mine.corruption,
           "': measure it there too, or leave the corruption out");
    const double ce = mine.error / row->error;
    result.corruption_errors.push_back({mine.corruption, ce});
    result.mce += ce / n;
    result.relative_mce += (mine.error - clean) / (row->error - baseline.clean) / n;
    result.mean_error += mine.error / n;
  }
  return result;
}

double CueCounts::shape_bias() const {
  const int64_t either = shape + texture;
  return either > 0 ? static_cast<double>(shape) / static_cast<double>(either)
                    : std::numeric_limits<double>::quiet_NaN();
}

double ShapeBias::decided() const {
  return all.total > 0 ? static_cast<double>(all.shape + all.texture) / static_cast<double>(all.total) : 0;
}

ShapeBias shape_bias(std::span<const CueTrial> trials) {
  ShapeBias result;
  for (const CueTrial& trial : trials) {
    if (trial.shape == trial.texture) continue;
    for (CueCounts* counts : {&result.all, &result.by_category[trial.shape]}) {
      ++counts->total;
      counts->shape += trial.decision == trial.shape;
      counts->texture += trial.decision == trial.texture;
    }
  }
  return result;
}

CueMapping cue_mapping_of_names(std::span<const std::string> class_names) {
  // What a category's class is called elsewhere: CIFAR-10's names of 3 of them.
  static const std::vector<std::pair<std::string, std::vector<std::string>>> known = {
      {"airplane", {"airplane", "plane"}},
      {"bear", {"bear"}},
      {"bicycle", {"bicycle"}},
      {"bird", {"bird"}},
      {"boat", {"boat", "ship"}},
      {"bottle", {"bottle"}},
      {"car", {"car", "automobile"}},
      {"cat", {"cat"}},
      {"chair", {"chair"}},
      {"clock", {"clock"}},
      {"dog", {"dog"}},
      {"elephant", {"elephant"}},
      {"keyboard", {"keyboard"}},
      {"knife", {"knife"}},
      {"oven", {"oven"}},
      {"truck", {"truck", "pickup_truck"}}};
  CueMapping mapping;
  for (const auto& [category, names] : known) {
    std::vector<int64_t> classes;
    for (size_t c = 0; c < class_names.size(); ++c)
      if (std::find(names.begin(), names.end(), class_names[c]) != names.end())
        classes.push_back(static_cast<int64_t>(c));
    if (classes.empty()) continue;
    mapping.categories.push_back(category);
    mapping.classes.push_back(std::move(classes));
  }
  return mapping.categories.size() < 2 ? CueMapping() : mapping;
}

size_t cue_decision(std::span<const double> probabilities, const CueMapping& mapping) {
  size_t best = 0;
  double highest = -1;
  for (size_t i = 0; i < mapping.classes.size(); ++i) {
    double mean = 0;
    for (const int64_t c : mapping.classes[i]) mean += probabilities[static_cast<size_t>(c)];
    mean /= static_cast<double>(mapping.classes[i].size());
    if (mean > highest) highest = mean, best = i;
  }
  return best;
}

}  // namespace tessera::eval
