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

// Drop path by factors, so that all steps make the same calls: while it lives, the branches of this thread and context run on all
// samples, and each sample of a branch has a factor, 0 or 1 / (1 - rate). Results differ from those of kept samples by rounding.
//
//   std::vector<DropPathFactors::Branch> branches;  // of the latest step
//   const torch::Tensor table = DropPathFactors::drawn(branches, context).to(device);
//   const DropPathFactors factors(branches, table, context);
class DropPathFactors {
 public:
  struct Branch {
    int64_t layer, batch;
    double rate;
    bool operator==(const Branch&) const = default;
  };
  // Returns the factors of the branches one after another, [sum of the batches] on the host.
  static torch::Tensor drawn(const std::vector<Branch>& branches, const Context& context);

  // Branches that `table` has in its place take their factors from there, others draw. `branches` becomes the list of the step.
  DropPathFactors(std::vector<Branch>& branches, const torch::Tensor& table, const Context& context);
  ~DropPathFactors();
  DropPathFactors(const DropPathFactors&) = delete;
  DropPathFactors& operator=(const DropPathFactors&) = delete;

  // Null if there is none in this thread.
  static DropPathFactors* current();
  // Returns the factors of the step's next branch, float32 [batch] on the device. Undefined for another context, such as that of one
  // of several views.
  torch::Tensor next(torch::Device device, const Branch& branch, const Context& context);

 private:
  std::vector<Branch>& branches_;
  std::vector<Branch> known_;
  torch::Tensor table_;
  Context context_;
  size_t met_ = 0;     // branches so far
  int64_t first_ = 0;  // number of their factors
  DropPathFactors* before_;
};

// Returns the factors of a branch, float32 [batch] on the device: 0 for dropped samples, 1 / (1 - rate) for kept ones.
torch::Tensor path_factors(torch::Device device, int64_t batch, double rate, int64_t layer,
                           const Context& context);

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
