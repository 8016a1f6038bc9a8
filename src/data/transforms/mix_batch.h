// Mixup and CutMix of a training batch, independent of the number of processes.
#pragma once

#include "data/base/field.h"
#include "data/transforms/mixup.h"

namespace tessera::data {

// Mixes samples 2i and 2i + 1 of the batch of all processes, field "image". This batch is a share of it that
// keeps pairs together. Adds the field "targets", f32 [classes], from "label" or from multi-label targets.
// `random` is the stream of this batch.
void mix_batch(const MixupConfig& config, int64_t classes, RandomStream& random, Batch& batch);

}  // namespace tessera::data
