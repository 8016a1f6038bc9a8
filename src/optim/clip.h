// Gradient clipping by the global norm, by the norm of each parameter (DINO), by value, or adaptively (AGC, Brock et al. 2021).
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::train {

struct ClipConfig {
  std::string mode = "none";  // none, norm, each, value or agc
  double value = 1;           // maximum norm, magnitude, or share of the parameter's norm
  double norm_type = 2;       // p of the p-norm, above 0: 1, 2, inf or any other
  void check(const std::string& where = "clip") const;
};

struct Clipped {
  double norm = 0;   // global norm before clipping
  double scale = 1;  // remaining factor for the gradients
};

// Returns the p-norm of the gradients of all processes. `own`: the norm of this process's gradients.
using NormOfAll = std::function<double(double own, double p)>;

// Clips the parameters' gradients, skipping undefined ones. `norm_of_all`: if other processes have parts of the gradients;
// the parameters of mode each are whole then, and those of agc have whole rows. Norm mode reads the gradients once and leaves
// them unchanged: pass `scale` = min(1, value / (norm + 1e-6)) to Optimiser::step. The other modes change
// them and return scale 1. Gradients of `unclipped` count in the norm but stay unchanged.
Clipped clip_gradients(const ClipConfig& config, const std::vector<torch::Tensor>& parameters,
                       const std::vector<torch::Tensor>& unclipped = {}, const NormOfAll& norm_of_all = {});

// The same on one device without reading anything back: [] float64 norm, and [] float32 scale of the gradients, which is
// not finite if the norm or `loss`, a number there, is not.
struct ClippedThere {
  torch::Tensor norm, scale;
};
ClippedThere clip_gradients_there(const ClipConfig& config, const std::vector<torch::Tensor>& parameters,
                                  const std::vector<torch::Tensor>& unclipped, const torch::Tensor& loss);

// Returns the p-norm of all tensors together, (sum |x|^p)^(1/p); for infinity the largest magnitude. The
// result does not depend on the number of threads.
double gradient_norm(const std::vector<torch::Tensor>& gradients, double norm_type = 2);
// The same of tensors with numbers, on their device: [] float64. Nothing is read back.
torch::Tensor gradient_norm_there(const std::vector<torch::Tensor>& gradients, double norm_type);

}  // namespace tessera::train
