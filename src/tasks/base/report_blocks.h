// Blocks and pictures of reports.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/transforms/transform.h"
#include "eval/classification.h"
#include "io/images/image.h"
#include "report/html.h"
#include "tasks/base/score_accumulator.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// Converts a model input [3, height, width] to bytes, undoing the normalisation of `preprocess`.
Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess);

// Returns the image of a sample, shrunk.
Image thumbnail_of(const data::Source& source, int64_t index);

// Returns 24 pictures of random samples, the same in every run with this seed. `make` returns the picture of
// one; samples for which it throws an Error are skipped.
std::vector<report::Picture> drawn_pictures(int64_t samples, uint64_t seed,
                                            const std::function<report::Picture(int64_t sample)>& make);

// The report blocks of a classifier's evaluation, in addition to its metrics.

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

// Returns at most `most` classes for each row of probabilities [samples, classes] in float32, the most likely first.
std::vector<Prediction> most_likely(const torch::Tensor& probabilities, const std::vector<std::string>& names,
                                    int64_t most);

}  // namespace tessera::tasks
