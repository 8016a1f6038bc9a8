// A sampler walks from noise to an image in steps, calling a network at each.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tessera::diffusion {

// A network as samplers call it: x [batch, channels, height, width], scaled as in training, and time [batch]
// (a step of the diffusion, or t of an interpolant) -> its output.
using Network = std::function<torch::Tensor(const torch::Tensor& x, const torch::Tensor& time)>;

// The parts of x: x = alpha * clean + sigma * noise.
struct Level {
  double alpha = 1, sigma = 0;
};

// One walk. `noise(step)` is standard normal of shape [batch, …], equal in every call; only samplers that
// draw noise call it. `after(step, x)` gets the result of a step and may change it.
struct Walk {
  int64_t first = 0;  // first step, with x at its level; at most steps()
  std::function<torch::Tensor(int64_t step)> noise;
  std::function<void(int64_t step, torch::Tensor& x)> after = {};
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t steps() const = 0;
  // Returns the noise level before step 0 … steps() - 1; for steps(), that of the result.
  virtual Level level(int64_t step) const = 0;
  virtual bool draws_noise() const = 0;
  // Returns the result for x at the level of the first step. Throws Error with step and sample if one is not
  // finite.
  virtual torch::Tensor run(const Network& network, const torch::Tensor& x, const Walk& walk) const = 0;
  // Walks the ordinary equation from a result back to the level before step `walk.first`. run() inverts it,
  // up to an error that falls with the number of steps. `walk.after` gets each step's x. Throws a usage error
  // for samplers that draw noise or solve no ordinary equation.
  virtual torch::Tensor walk_back(const Network& network, const torch::Tensor& result,
                                  const Walk& walk) const;
  // The factor on the initial noise of a walk from step 0.
  virtual double start_scale() const { return 1; }
};

// Passes the state after a step to the walk. Throws Error unless all of it is finite.
void finish_step(const Walk& walk, int64_t step, int64_t steps, torch::Tensor& x);

// Returns the network's time, repeated for a whole batch.
torch::Tensor time_of(double time, const torch::Tensor& x);

// Returns a network that counts its calls.
Network counted(Network network, int64_t& calls);

}  // namespace tessera::diffusion
