// The arguments of a forward pass in addition to its input: keys of its random draws, its condition, and the
// taps to keep.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace tessera::nn {

// Named internal values of a model for analysis: "blocks.3", "blocks.3.attention". A model calls tap(taps,
// …); with taps == nullptr nothing is kept.
struct Taps {
  std::function<bool(const std::string& name)> wanted;  // empty = all
  std::map<std::string, torch::Tensor> kept;
  bool whole_blocks = false;  // only "blocks.N" are wanted, which activation checkpointing keeps anyway
  bool wants(const std::string& name) const { return !wanted || wanted(name); }
};

// Stores the value if it is selected, and returns it.
inline torch::Tensor tap(Taps* taps, const std::string& name, torch::Tensor value) {
  if (taps && taps->wants(name)) taps->kept.insert_or_assign(name, value);
  return value;
}

struct Context {
  // Keys the random draws of drop path: (seed, step) and the samples' positions, never ATen's generator.
  uint64_t seed = 0, step = 0;
  Taps* taps = nullptr;
  // Position of this batch's first sample among the samples of the step (ranks, accumulated pieces).
  int64_t first_sample = 0;
  // The condition of every block (a time step, a class, a text), [batch, channels]; undefined = none. A model
  // with unconditional blocks throws if a condition is given.
  torch::Tensor condition = {};
};

}  // namespace tessera::nn
