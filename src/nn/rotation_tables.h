// Cos and sin of a rotation where they are used.
#pragma once

#include "nn/rope.h"

namespace tessera::nn {

// Returns cos and sin of the angles times the magnitude, for x: in float64 next to the angles on a CPU, else on
// x's device in the type that x is rotated in, made once for equal angles.
struct RotationTables {
  torch::Tensor cos, sin;
};
RotationTables rotation_tables(const Rotation& rotation, const torch::Tensor& x);

}  // namespace tessera::nn
