// One pass over a validation stream; every task's evaluation uses it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/transforms/transform.h"
#include "tasks/base/paired_findings.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task.h"
#include "tasks/base/text_input.h"

namespace tessera::tasks {

// Words for what a pass counts: "there is no conversation to evaluate on", "interrupted after 3 …".
struct PassWords {
  const char* sample = "image";
  const char* counted = "images";
};

// Calls `see` with each batch of this process that has samples; `batch.first` is then the index of its first
// sample in the whole pass, over all processes. Reports progress after each batch, and throws
// ErrorKind::interrupted if the progress callback returns false. Findings list broken images.
Findings evaluate_each(const EvaluateOptions& options, const StreamSpec& stream,
                       const std::function<void(data::Batch& batch)>& see, const PassWords& words = {});

// The same for values per sample: adds the rows that `see` returns to `rows`, and gathers those of all
// processes. Throws if there are no samples.
Findings evaluate_rows(const EvaluateOptions& options, const StreamSpec& stream, SampleRows& rows,
                       const std::function<torch::Tensor(data::Batch& batch)>& see,
                       const PassWords& words = {});

// Throws if there are no samples.
void require_samples(int64_t samples, const PassWords& words = {});

// Moves the batch to the device, in the precision of an evaluation.
inline StreamInputs to_device(const data::Batch& batch, const EvaluateOptions& options) {
  return to_device(batch, "validation", options.device, options.precision);
}

// Detects diverged or damaged weights: they may be finite but give outputs that are not.

// True if the loss of an evaluation is finite, or the main metric of a task without one. Evaluators report
// NaN if a model output is not finite. Metrics without any sample are ignored.
bool gives_numbers(const Findings& findings, const MetricInfo& main);

// True if all values of a prediction are finite.
bool gives_numbers(const Prediction& prediction);

// Streams shared by several tasks: training images without labels, alone or with captions, and validation
// images. The trainer chooses the image side.

StreamSpec training_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                           const data::AugmentConfig& augment);
// Images with "tokens" of one of their captions (make_text_transform).
StreamSpec training_pairs(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                          const data::AugmentConfig& augment, const TextInput& input, int64_t length,
                          TrainCaptions captions);
StreamSpec validation_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess);

}  // namespace tessera::tasks
