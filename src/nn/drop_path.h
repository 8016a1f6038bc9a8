// Stochastic depth in its efficient form: the branch runs only on the samples that keep it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/context.h"
#include "nn/linear.h"

namespace tessera::nn {

// Returns the positions of the samples that keep the branch. Sample i of the step drops it with probability
// `rate`. The draw depends only on (seed, step, layer, sample), so it is the same for any batch split, rank,
// or recomputation.
std::vector<int64_t> kept_samples(int64_t batch, double rate, int64_t layer, const Context& context);

// x + branch(x), where each sample drops the branch with probability `rate`, and kept ones are scaled by 1 /
// (1 - rate) (Huang et al. 2016). Without training, or with rate 0, exactly x + branch(x). `layer` identifies
// the branch within a model. The branch sees only the kept samples.
torch::Tensor residual(const torch::Tensor& x, double rate, bool training, int64_t layer,
                       const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&)>& branch);

// The same for a branch with a last layer that takes an Epilogue. That layer applies the scale and, if no
// sample is dropped, the residual. `scale` [width] multiplies the branch (LayerScale); undefined: none.
torch::Tensor residual(const torch::Tensor& x, const torch::Tensor& scale, double rate, bool training,
                       int64_t layer, const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&, const Epilogue&)>& branch);

// The same for a branch with per-sample data: it also gets the batch indices of its samples, [kept] int64,
// undefined = all.
torch::Tensor residual(const torch::Tensor& x, const torch::Tensor& scale, double rate, bool training,
                       int64_t layer, const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&, const Epilogue&,
                                                         const torch::Tensor& samples)>& branch);

// Returns the rate of each of `depth` blocks: from 0 to `rate` linearly, or `rate` for all.
std::vector<double> drop_path_rates(double rate, int64_t depth, bool decay);

}  // namespace tessera::nn
