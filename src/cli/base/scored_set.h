// A classifier's scores on a whole set, with the set's classes matched to the model's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/base/analysis_input.h"
#include "data/base/class_names.h"
#include "data/base/source.h"

namespace tessera::cli {

// Scores for the set's own classes only, in the order of the set; unreadable images are missing.
struct ScoredSet {
  int64_t classes = 0;
  std::vector<float> logits;       // [images, classes]
  std::vector<int64_t> labels;     // by the set's classes
  std::vector<std::string> names;  // of images
  std::vector<std::string> class_names;
  std::string source, mapping;
  int64_t images() const { return static_cast<int64_t>(labels.size()); }
  std::span<const float> row(int64_t image) const {
    return std::span(logits).subspan(static_cast<size_t>(image * classes), static_cast<size_t>(classes));
  }
  // For each image, true if the label has the highest score (of equal scores the first).
  std::vector<bool> hits() const;
};

// Scores at most `most` images, evenly spread, 0 = all. Fails if none can be read, or an output is not
// finite.
ScoredSet score_set(const AnalysedModel& model, const data::Source& source, int64_t batch, int64_t most,
                    const std::string& label, bool classes_in_order = false);

// Opens the set of the input, or else that of the run.
std::shared_ptr<const data::Source> open_set(const AnalysisInput& input, const AnalysedModel& model);

// If there are several weights and no --data, prints that all are measured on the set of the first.
void say_whose_set(const AnalysisInput& input, const std::vector<std::string>& weights,
                   const data::Source& source);

}  // namespace tessera::cli
