// Stochastic depth in its efficient form: the branch runs only on the samples that keep it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/context.h"
#include "nn/linear.h"

namespace tessera::nn {

// Positions of the samples that keep the branch. Sample i of the step drops it with probability `rate`; the
// draw depends on (seed, step, layer, sample) alone, so it is the same for any batch split, rank, or
// recomputation.
std::vector<int64_t> kept_samples(int64_t batch, double rate, int64_t layer, const Context& context);

// x + branch(x), each sample's branch dropped with probability `rate` and the kept ones scaled by 1 / (1 -
// rate) (Huang et al. 2016). Without training, or with rate 0, plainly x + branch(x). `layer` tells the
// branches of a model apart. The branch sees the kept samples only.
torch::Tensor residual(const torch::Tensor& x, double rate, bool training, int64_t layer,
                       const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&)>& branch);

// The same for a branch whose last layer takes an Epilogue: scale, and where no sample is dropped the
// residual too, are that layer's business. `scale` [width] multiplies the branch (LayerScale); undefined:
// none.
torch::Tensor residual(const torch::Tensor& x, const torch::Tensor& scale, double rate, bool training,
                       int64_t layer, const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&, const Epilogue&)>& branch);

// The same for a branch with something of its own for each sample: it is also told which samples it sees,
// [kept] int64 positions in the batch, undefined = all.
torch::Tensor residual(const torch::Tensor& x, const torch::Tensor& scale, double rate, bool training,
                       int64_t layer, const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&, const Epilogue&,
                                                         const torch::Tensor& samples)>& branch);

// The rate of each of `depth` blocks: from 0 to `rate` linearly, or `rate` for all.
std::vector<double> drop_path_rates(double rate, int64_t depth, bool decay);

}  // namespace tessera::nn
