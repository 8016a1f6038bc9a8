// A network that follows a trained one: the teacher of DINO, the momentum encoder of MoCo (He et al. 2020).
//
//   tensors <- keep * tensors + (1 - keep) * trained
//
// Its tensors are buffers of a module of their own. So the optimiser, clipping and weight decay never see them, and
// checkpoints contain them.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/base/model.h"
#include "nn/named_tensors.h"

namespace tessera::tasks {

// Momentum at a step of `steps`: half a cosine from `first` to 1 (Grill et al. 2020).
double cosine_momentum(double first, int64_t step, int64_t steps);

// Returns the spec of a momentum network: without stochastic depth.
models::ModelSpec momentum_spec(models::ModelSpec trained);

class MomentumNetwork {
 public:
  using Modules = std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>>;
  // Pairs of modules of equal trees, with a prefix of their names ("head."). The followers stop getting gradients.
  MomentumNetwork(const Modules& followers, const Modules& trained);

  // The module for Task::parts.
  const std::shared_ptr<torch::nn::Module>& buffers() const { return buffers_; }
  // Sets all tensors, buffers included, to those of the trained network.
  void copy();
  // Moves the parameters. Running statistics stay those of the follower's own passes.
  void follow(double keep);
  // Sets the mode of the trained network.
  void take_mode();

 private:
  Modules followers_, trained_;
  std::vector<torch::Tensor> tensors_, parameters_, trained_parameters_, trained_tensors_;
  std::shared_ptr<torch::nn::Module> buffers_;
};

}  // namespace tessera::tasks
