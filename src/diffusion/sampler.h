// A sampler walks from noise to an image in steps, asking a network on the way.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tessera::diffusion {

// A network as samplers see it: x [batch, channels, height, width] as it was trained on it, time [batch] (a step of
// the diffusion, or t of an interpolant) -> its output.
using Network = std::function<torch::Tensor(const torch::Tensor& x, const torch::Tensor& time)>;

// How much of the clean image and of the noise x holds: x = alpha * clean + sigma * noise.
struct Level {
  double alpha = 1, sigma = 0;
};

// One walk. `noise(step)` is [batch, …] standard normal, the same whenever it is asked for; only samplers that draw
// ask. `after(step, x)` sees, and may change, what a step has made.
struct Walk {
  int64_t first = 0;  // the step to begin with, x given at its level; not after steps()
  std::function<torch::Tensor(int64_t step)> noise;
  std::function<void(int64_t step, torch::Tensor& x)> after = {};
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t steps() const = 0;
  // Before step 0 … steps() - 1; steps(): of the result.
  virtual Level level(int64_t step) const = 0;
  virtual bool draws_noise() const = 0;
  // x at the level of the first step -> the result. Fails where a sample stops being finite, naming step and sample.
  virtual torch::Tensor run(const Network& network, const torch::Tensor& x, const Walk& walk) const = 0;
  // The ordinary equation from a result back to the level before step `walk.first`, as run() would make the result of
  // what is found, but for an error that falls with the number of steps. `walk.after` sees what each step has found. A usage
  // error of samplers that draw noise or solve no ordinary equation.
  virtual torch::Tensor walk_back(const Network& network, const torch::Tensor& result,
                                  const Walk& walk) const;
  // What noise is multiplied by before a walk from step 0 begins with it.
  virtual double start_scale() const { return 1; }
};

// Hands the state after a step to the walk, and fails unless all of it is finite.
void finish_step(const Walk& walk, int64_t step, int64_t steps, torch::Tensor& x);

// The network's time for a whole batch.
torch::Tensor time_of(double time, const torch::Tensor& x);

// Counts the calls of a network.
Network counted(Network network, int64_t& calls);

}  // namespace tessera::diffusion
