// The report blocks of a classifier's evaluation, in addition to its metrics.
#pragma once

#include <string>
#include <vector>

#include "eval/classification.h"
#include "tasks/base/score_accumulator.h"

namespace tessera::tasks {

// Returns the requested blocks among "pictures" (a grid of predictions), "confusion", "classes" (precision,
// recall and F1 of each) and "samples" (a row for each sample). If `class_names` is empty, classes are
// numbered.
std::vector<report::Block> classify_blocks(const ScoredSamples& scored, const data::Source& source,
                                           const std::vector<std::string>& class_names,
                                           const EvaluateOptions& options);

// Returns the table "classes": samples, precision, recall and F1 of each.
report::TableBlock class_table(const eval::ClassificationMeter& meter, const std::vector<std::string>& names);

// Returns "cat", or "class 7" if the classes have no names.
std::string class_name(const std::vector<std::string>& names, int64_t index);

}  // namespace tessera::tasks
