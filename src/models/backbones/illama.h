// Training of iLLaMA besides the model: schedules of a rate (its soft mask, its dropout), and first weights
// cut out of a larger model's.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

#include "core/config.h"

namespace tessera::models {

// When a rate is on: until the cut-off and 0 from then on (soft), throughout (standard), or from the cut-off
// on and 0 until then (late). The published code calls soft "early" for dropout.
enum class RateMode { soft, standard, late };
// The rate of mode soft falls linearly from `rate` to 0 over the steps before the cut-off, both ends
// included, or is constant.
enum class RateShape { linear, constant };

struct RateSchedule {
  double rate = 0;
  int64_t epochs = 0, steps_per_epoch = 0, cutoff_epoch = 0;
  RateMode mode = RateMode::soft;
  RateShape shape = RateShape::linear;
};
double rate_at(const RateSchedule& schedule, int64_t step);
// One value a step of all epochs.
std::vector<double> rates(const RateSchedule& schedule);

// Weight selection (Xu et al. 2024, "Initializing models with larger ones"), uniform: along each axis every
// (a/b)-th element where b divides a, else the elements nearest to b evenly spaced places, halves to even.
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
