// How much memory training takes, found by trying with one and two pictures.
#pragma once

#include <cstdint>

#include "models/model.h"
#include "tasks/task.h"

namespace tessera::train {

// What a forward and backward pass allocates at its height besides weights and gradients: `fixed` and, for
// each picture, `per_picture` bytes.
struct ActivationBytes {
  int64_t fixed = 0, per_picture = 0;
};
// The model on the CPU, in training; its gradients are left set. `side` of the pictures in pixels.
ActivationBytes measure_activations(models::Backbone& model, int64_t side, tasks::Precision precision);

}  // namespace tessera::train
