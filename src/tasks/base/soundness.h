// Whether weights give numbers: what diverged or was damaged may keep finite weights whose outputs are none.
#pragma once

#include "tasks/base/task.h"

namespace tessera::tasks {

// Whether the loss that an evaluation found, or the main metric of a task without one, is finite. An evaluator
// gives NaN where an output of the model is none.
bool gives_numbers(const Findings& findings, const MetricInfo& main);

// Whether all values of a prediction are finite.
bool gives_numbers(const Prediction& prediction);

}  // namespace tessera::tasks
