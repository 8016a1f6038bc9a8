// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM"): processes with the same samples divide the heads and the
// hidden channels of a layer.
//
//   const nn::LayerDivisionScope scope(&division);   // null: every process computes whole layers
//   loss(…).backward();                              // in this thread
//
// A process multiplies by its rows of a layer's first weights and by its columns of the last ones, cut from whole
// weights. The mean of the weights' gradients over all processes is the gradient of the undivided layer, as in
// data parallelism.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/linear.h"
#include "ops/linear.h"

namespace tessera::nn {

// Consecutive heads or channels.
struct Share {
  int64_t first = 0, count = 0;
  // Returns the channels of these heads.
  Share channels(int64_t head_dim) const { return {first * head_dim, count * head_dim}; }
};

// The processes that divide layers.
class LayerDivision {
 public:
  virtual ~LayerDivision() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // Sums over the processes in place. `values` is contiguous.
  virtual void sum(const torch::Tensor& values) const = 0;
  // Returns this process's share of `count` heads or channels.
  Share share_of(int64_t count) const {
    const int64_t first = count * rank() / size();
    return {first, count * (rank() + 1) / size() - first};
  }
};

// While it lives, `division` divides the layers of this thread. It may be null and must outlive the backward passes.
class LayerDivisionScope {
 public:
  explicit LayerDivisionScope(const LayerDivision* division);
  ~LayerDivisionScope();
  LayerDivisionScope(const LayerDivisionScope&) = delete;
  LayerDivisionScope& operator=(const LayerDivisionScope&) = delete;
  // Returns that of this thread; null outside of a scope.
  static const LayerDivision* current();

 private:
  const LayerDivision* before_;
};

// Returns the division of this thread if it divides a layer with this number of heads or channels; else null.
const LayerDivision* division_of(int64_t count);

// The two ends of a divided layer. Between them, gradients are `size` times those of an undivided layer.
// Returns x. Its gradient is the mean of the processes' gradients.
torch::Tensor enter_division(const torch::Tensor& x, const LayerDivision& division);
// Returns the sum of the processes' terms. The gradient of each is `size` times that of the sum.
torch::Tensor leave_division(const torch::Tensor& term, const LayerDivision& division);
// Returns the sum of the processes' terms, for readers that are divided too.
torch::Tensor sum_in_division(const torch::Tensor& term, const LayerDivision& division);

// Returns rows of a weight [out, in] and a bias [out] or undefined. With groups > 1 these are the same rows of each of
// `groups` equal parts (q, k and v; gate and up).
ops::LinearParameters rows_of(const torch::Tensor& weight, const torch::Tensor& bias, const Share& rows,
                              int64_t groups = 1);
// Returns x W^T + b, with the activation, for rows_of().
torch::Tensor product(const torch::Tensor& x, const ops::LinearParameters& parameters);
// Returns the output of a whole layer, weight [out, in], from this process's channels of its input, [..., count].
torch::Tensor join_channels(const torch::Tensor& part, const torch::Tensor& weight, const torch::Tensor& bias,
                            const Share& channels, const LayerDivision& division, const Epilogue& epilogue);

}  // namespace tessera::nn
