// What a classifier's evaluation shows besides its metrics.
#pragma once

#include <string>
#include <vector>

#include "eval/classification.h"
#include "tasks/base/score_accumulator.h"

namespace tessera::tasks {

// Those of "pictures" (a grid of predictions), "confusion", "classes" (precision, recall and F1 of each) and
// "samples" (a row for each sample) that the options ask for. `class_names` may be empty: classes are then
// called by their number.
std::vector<report::Block> classify_blocks(const ScoredSamples& scored, const data::Source& source,
                                           const std::vector<std::string>& class_names,
                                           const EvaluateOptions& options);

// The table "classes": samples, precision, recall and F1 of each.
report::TableBlock class_table(const eval::ClassificationMeter& meter, const std::vector<std::string>& names);

// "cat", or "class 7" where classes have no names.
std::string class_name(const std::vector<std::string>& names, int64_t index);

}  // namespace tessera::tasks
