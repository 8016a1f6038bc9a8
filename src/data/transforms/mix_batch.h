// Mixup and CutMix of a training batch, the same however many processes share it.
#pragma once

#include "data/base/field.h"
#include "data/transforms/mixup.h"

namespace tessera::data {

// Mixes samples 2i and 2i + 1 of the batch of all processes (of which this batch holds a share that keeps
// pairs together), field "image", and adds the field "targets", f32 [classes], from "label" or from the
// targets of several classes. `random` is the stream of this batch.
void mix_batch(const MixupConfig& config, int64_t classes, RandomStream& random, Batch& batch);

}  // namespace tessera::data
