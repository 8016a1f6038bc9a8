// A random patch order for each sample of a batch: defines the mask, or the sequence.
#pragma once

#include <cstdint>
#include <functional>

#include "core/random.h"
#include "data/base/field.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// Adds the field "order", i64 [patches]: a permutation for each sample, drawn from stream_of(its index in the
// batch).
void add_orders(data::Batch& batch, int64_t patches,
                const std::function<RandomStream(int64_t sample)>& stream_of);

// The same for a training step: new in every step. It depends on the sample's global index, so not on the
// number of processes or pieces. `purpose` separates draws of several kinds.
void draw_orders(data::Batch& batch, int64_t patches, const char* purpose, const StepKey& key);

}  // namespace tessera::tasks
