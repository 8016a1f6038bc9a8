// Gradient clipping: by the norm of all gradients together, by value, or adaptively (AGC, Brock et al. 2021).
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace tessera::train {

struct ClipConfig {
  std::string mode = "none";  // none, norm, value or agc
  double value = 1;           // largest norm; largest magnitude; largest share of the parameter's norm
  double norm_type = 2;       // p of the p-norm, above 0: 1, 2, inf or any other
  void check(const std::string& where = "clip") const;
};

struct Clipped {
  double norm = 0;   // of all gradients together, before clipping
  double scale = 1;  // what is left to multiply the gradients by
};

// Clips the gradients of the parameters (those without one are passed over). Norm mode reads the gradients
// once and leaves them as they are: hand `scale` = min(1, value / (norm + 1e-6)) to Optimiser::step.
// The other modes change them and return scale 1. The gradients of `unclipped` count in the norm and stay.
Clipped clip_gradients(const ClipConfig& config, const std::vector<torch::Tensor>& parameters,
                       const std::vector<torch::Tensor>& unclipped = {});

// The p-norm of all tensors together, (sum |x|^p)^(1/p), of infinity the largest magnitude. The same whatever
// the number of threads.
double gradient_norm(const std::vector<torch::Tensor>& gradients, double norm_type = 2);

}  // namespace tessera::train
