// Parts of the baselines that other files call: the mask of AIM's pre-training (aim.cpp), the merged form of VanillaNet
// (vanillanet_merge.cpp), and iLLaMA's training in addition to the model (illama.cpp): schedules of a rate (its
// soft mask, its dropout), and initial weights selected from a larger model.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"
#include "nn/named_tensors.h"

namespace tessera::models {

// Returns the bias of attention [batch, 1, tokens, tokens] if a token sees itself, the tokens before it and all
// tokens of its image's prefix: 0 for these, -infinity for the others. `in_prefix`: bool [batch, tokens].
torch::Tensor prefix_bias(const torch::Tensor& in_prefix);

// Returns the tensors of the merged form (`model.merged`) from all tensors of the training form: each batch norm goes
// into the layer before it, and each pair of layers without an activation in between becomes one. Computes in float64,
// returns the dtype of the weights. Throws Error if a tensor is missing, or if the slope of the leaky ReLU is not 1.
NamedTensors merged_vanillanet(const NamedTensors& trained);

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
