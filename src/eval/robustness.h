// Errors under corruption relative to a baseline (Hendrycks & Dietterich 2019), and decisions between shape
// and texture (Geirhos et al. 2019).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

// The mean error over the severities of one corruption, for a model or a baseline, as a share.
struct CorruptionError {
  std::string corruption;
  double error = 0;
  int64_t images = 0;  // for each severity; 0: unknown
};

// A baseline's mean error for each corruption, and on clean images; NaN if unknown.
struct CorruptionBaseline {
  std::string name;
  std::vector<CorruptionError> errors;
  double clean = 0;
  int64_t clean_images = 0;                       // 0: unknown
  std::vector<int> severities = {1, 2, 3, 4, 5};  // averaged over, ascending
};
// Returns AlexNet's errors on ImageNet-C, from the benchmark's code. The clean error is 43.5 % in the paper;
// torchvision's weights, which the benchmark measured, have 56.522 % right.
const CorruptionBaseline& alexnet_on_imagenet_c();

// Parses the table that `analyse robustness --csv` writes for one model: a header "corruption,…,error,…" and
// a line for each corruption; clean images have the name "clean". The columns "severities" ("1 3 5", default
// 1 to 5) and "images" are optional. Throws a usage error with `name` and the line; a table of several models
// is an error.
CorruptionBaseline parse_baseline(std::string_view table, const std::string& name);

// Returns the baseline's error under a corruption. Throws a usage error if it is missing or 0.
const CorruptionError& baseline_error(const CorruptionBaseline& baseline, const std::string& corruption);
// Returns "1,3,5", joined with the separator ",".
std::string severity_list(std::span<const int> severities, const char* separator);

// Throws a usage error unless the baseline has all these corruptions, at exactly these severities
// (ascending).
void require_comparable(const CorruptionBaseline& baseline, std::span<const std::string> corruptions,
                        std::span<const int> severities);
// Throws a usage error if both numbers of images are known and differ; `what`: "fog".
void require_as_many(const CorruptionBaseline& baseline, const std::string& what, int64_t images,
                     int64_t of_baseline);

struct MeanCorruptionError {
  std::vector<CorruptionError> corruption_errors;  // CE: error / the baseline's, in the order of `errors`
  double mce = 0;                                  // their mean
  double relative_mce = 0;  // mean (error - clean) / (the baseline's error - its clean error)
  double mean_error = 0;    // without the baseline
};
// Throws a usage error with the corruption if the baseline has no row for it. `clean`: the model's error on
// clean images; if NaN, relative_mce is NaN too.
MeanCorruptionError mean_corruption_error(std::span<const CorruptionError> errors, double clean,
                                          const CorruptionBaseline& baseline);

// An image with the shape of one category and the texture of another.
struct CueTrial {
  std::string shape, texture, decision;
};
struct CueCounts {
  int64_t shape = 0, texture = 0, total = 0;  // decisions for shape and for texture; all trials
  double shape_bias() const;                  // shape / (shape + texture); NaN if both are 0
};
struct ShapeBias {
  CueCounts all;
  std::map<std::string, CueCounts> by_category;  // by the shape's category
  double decided() const;                        // share of decisions for either cue
};
// Ignores trials with equal cues.
ShapeBias shape_bias(std::span<const CueTrial> trials);

// The model's classes that make up each category of the cue-conflict images.
struct CueMapping {
  std::vector<std::string> categories;
  std::vector<std::vector<int64_t>> classes;  // by category
};
// Maps class names to categories of the same name (CIFAR-10 has 7 of the 16). Empty if fewer than two.
CueMapping cue_mapping_of_names(std::span<const std::string> class_names);
// Returns the category with the highest mean probability over its classes, the first on a tie.
size_t cue_decision(std::span<const double> probabilities, const CueMapping& mapping);

}  // namespace tessera::eval
