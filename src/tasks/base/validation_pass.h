// The pass over the validation images, shared by all tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "data/loading/loader.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// Calls `see` with each batch of this process and the number of samples of all processes in earlier batches.
// Skips batches without a sample for this process. Reports progress after each batch; if that returns false,
// throws ErrorKind::interrupted. `what` names the counted items.
void each_batch(const EvaluateOptions& options, data::Loader& loader,
                const std::function<void(data::Batch& batch, int64_t before)>& see,
                std::string_view what = "images");

}  // namespace tessera::tasks
