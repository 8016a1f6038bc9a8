// How much memory training takes, found by trying with one and two pictures.
#pragma once

#include <cstdint>

#include "models/model.h"
#include "tasks/task.h"

namespace tessera::train {

// What a pass allocates at its height besides weights and gradients: `fixed` and, for each picture,
// `per_picture` bytes.
struct ActivationBytes {
  int64_t fixed = 0, per_picture = 0;
};
// Of a forward and backward pass of the model on the CPU; its gradients are left set. `side` of the pictures
// in pixels.
ActivationBytes measure_training(models::Backbone& model, int64_t side, tasks::Precision precision);
// Of a forward pass without gradients.
ActivationBytes measure_evaluation(models::Backbone& model, int64_t side, tasks::Precision precision);

}  // namespace tessera::train
