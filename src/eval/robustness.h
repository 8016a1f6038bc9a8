// Errors under corruption beside a baseline's (Hendrycks & Dietterich 2019), and decisions between shape and texture (Geirhos
// et al. 2019).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

// Mean error of a model over the severities of one corruption, or a baseline's, as shares.
struct CorruptionError {
  std::string corruption;
  double error = 0;
  int64_t images = 0;  // of each severity; 0: not known
};

// A baseline's mean error by corruption, and on clean images; NaN where it is not known.
struct CorruptionBaseline {
  std::string name;
  std::vector<CorruptionError> errors;
  double clean = 0;
  int64_t clean_images = 0;                       // 0: not known
  std::vector<int> severities = {1, 2, 3, 4, 5};  // that the errors are means over, ascending
};
// AlexNet on ImageNet-C, as the benchmark's code gives it, and its error on clean images, 43.5 % in the paper (torchvision's
// weights, which the benchmark measured, have 56.522 % right).
const CorruptionBaseline& alexnet_on_imagenet_c();

// The table that `analyse robustness --csv` writes for one model: a header "corruption,…,error,…" and a line for each corruption,
// that of clean images called "clean". "severities", as "1 3 5", and "images" may be missing: the first is then 1 to 5. A usage
// error that names `name` and the line; tables of several models are refused.
CorruptionBaseline parse_baseline(std::string_view table, const std::string& name);

// The baseline's error under a corruption; a usage error that names it where there is none to divide by.
const CorruptionError& baseline_error(const CorruptionBaseline& baseline, const std::string& corruption);
// "1,3,5" by a comma.
std::string severity_list(std::span<const int> severities, const char* separator);

// A usage error unless the baseline has all of these corruptions, and at these severities, ascending.
void require_comparable(const CorruptionBaseline& baseline, std::span<const std::string> corruptions,
                        std::span<const int> severities);
// A usage error where both numbers of images are known and differ; `what`: "fog".
void require_as_many(const CorruptionBaseline& baseline, const std::string& what, int64_t images,
                     int64_t of_baseline);

struct MeanCorruptionError {
  std::vector<CorruptionError> corruption_errors;  // CE: error / the baseline's, in the order of `errors`
  double mce = 0;                                  // their mean
  double relative_mce = 0;  // mean of (error - clean) / (the baseline's error - its clean error)
  double mean_error = 0;    // not divided by a baseline
};
// A usage error, naming it, on a corruption that the baseline has no row for. `clean`: the model's error on clean images; NaN: then
// relative_mce is NaN too.
MeanCorruptionError mean_corruption_error(std::span<const CorruptionError> errors, double clean,
                                          const CorruptionBaseline& baseline);

// One image whose shape is of one category and whose texture is of another.
struct CueTrial {
  std::string shape, texture, decision;
};
struct CueCounts {
  int64_t shape = 0, texture = 0, total = 0;  // decisions for either, and all trials
  double shape_bias() const;                  // shape / (shape + texture); NaN where both are 0
};
struct ShapeBias {
  CueCounts all;
  std::map<std::string, CueCounts> by_category;  // of the shape
  double decided() const;                        // the share of decisions for one of the two cues
};
// Trials whose cues agree are dropped.
ShapeBias shape_bias(std::span<const CueTrial> trials);

// The classes of a model that make up each category of the cue-conflict images.
struct CueMapping {
  std::vector<std::string> categories;
  std::vector<std::vector<int64_t>> classes;  // of each category
};
// The categories that these class names mean themselves: those of CIFAR-10 are 7 of the 16. Empty where fewer than two are.
CueMapping cue_mapping_of_names(std::span<const std::string> class_names);
// The category with the highest mean probability over its classes, the first of equals.
size_t cue_decision(std::span<const double> probabilities, const CueMapping& mapping);

}  // namespace tessera::eval
