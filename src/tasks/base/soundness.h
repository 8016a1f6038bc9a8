// Detects diverged or damaged weights: they may be finite but give outputs that are not.
#pragma once

#include "tasks/base/task.h"

namespace tessera::tasks {

// True if the loss of an evaluation is finite, or the main metric of a task without one. Evaluators report
// NaN if a model output is not finite. Metrics without a sample prove nothing.
bool gives_numbers(const Findings& findings, const MetricInfo& main);

// True if all values of a prediction are finite.
bool gives_numbers(const Prediction& prediction);

}  // namespace tessera::tasks
