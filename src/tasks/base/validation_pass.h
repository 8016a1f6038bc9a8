// One pass over the validation images, as every task makes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "data/loading/loader.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// Calls `see` with each batch of this process and the number of samples that stood in all batches before it, counted over
// all processes; batches without a sample for this process are passed over. Reports the progress after each batch, and
// throws ErrorKind::interrupted where that says to end; `what` names what is counted there.
void each_batch(const EvaluateOptions& options, data::Loader& loader,
                const std::function<void(data::Batch& batch, int64_t before)>& see,
                std::string_view what = "images");

}  // namespace tessera::tasks
