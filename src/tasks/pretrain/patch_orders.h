// An order of the patches for each sample of a batch: which of them are masked, or come one after the other.
#pragma once

#include <cstdint>
#include <functional>

#include "core/random.h"
#include "data/base/field.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// Adds the field "order", i64 [patches]: a permutation for each sample, drawn from stream_of(its number in the
// batch).
void add_orders(data::Batch& batch, int64_t patches,
                const std::function<RandomStream(int64_t sample)>& stream_of);

// The same for a step of training: new in every step, and by the sample's place among those of all processes, so
// that it depends neither on their number nor on pieces. `purpose` keeps draws of several kinds apart.
void draw_orders(data::Batch& batch, int64_t patches, const char* purpose, const StepKey& key);

}  // namespace tessera::tasks
