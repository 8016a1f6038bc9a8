// What training iLLaMA takes besides the model: the schedules of its soft mask (and of dropout), and first
// weights cut out of a larger model's.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::models {

// A rate that is on for a part of training.
//   mode    "standard": `rate` throughout; "soft" or "early": until cutoff_epoch, then 0; "late": 0 until
//   then,
//           then `rate`
//   shape   "constant", or "linear": falls from `rate` to 0 over the steps before the cut-off, both ends
//           included ("soft" and "early" only)
struct RateSchedule {
  double rate = 0;
  int64_t epochs = 0, steps_per_epoch = 0, cutoff_epoch = 0;
  std::string mode = "soft", shape = "linear";
};
double rate_at(const RateSchedule& schedule, int64_t step);
// One value a step of all epochs.
std::vector<double> rates(const RateSchedule& schedule);

// Weight selection (Xu et al. 2024, "Initializing models with larger ones"), uniform: along each axis every
// (a/b)-th element where b divides a, else the elements nearest to b evenly spaced places, halves to even.
torch::Tensor select_weights(const torch::Tensor& large, torch::IntArrayRef shape);

}  // namespace tessera::models
