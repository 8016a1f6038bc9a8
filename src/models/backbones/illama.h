// Training of iLLaMA in addition to the model: schedules of a rate (its soft mask, its dropout), and initial
// weights selected from a larger model.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

#include "core/config.h"

namespace tessera::models {

// When a rate is non-zero: before the cut-off (soft), throughout (standard), or from the cut-off on (late).
// For dropout, the published code calls soft "early".
enum class RateMode { soft, standard, late };
// In mode soft, the rate is constant or falls linearly from `rate` to 0 over the steps before the cut-off,
// both ends included.
enum class RateShape { linear, constant };

struct RateSchedule {
  double rate = 0;
  int64_t epochs = 0, steps_per_epoch = 0, cutoff_epoch = 0;
  RateMode mode = RateMode::soft;
  RateShape shape = RateShape::linear;
};
double rate_at(const RateSchedule& schedule, int64_t step);
// Returns one value per step of all epochs.
std::vector<double> rates(const RateSchedule& schedule);

// Selects weights uniformly (Xu et al. 2024, "Initializing models with larger ones"). Along each axis, it
// takes every (a/b)-th element if b divides a. Otherwise it takes the elements nearest to b evenly spaced
// positions, rounding halves to even.
torch::Tensor select_weights(const torch::Tensor& large, torch::IntArrayRef shape);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::RateMode> {
  static constexpr std::array names = {"soft", "standard", "late"};
};
template <>
struct tessera::EnumNames<tessera::models::RateShape> {
  static constexpr std::array names = {"linear", "constant"};
};
