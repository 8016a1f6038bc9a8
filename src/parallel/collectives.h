// Exchanges along an axis that autograd differentiates. All processes of the axis call them in the same order,
// forward and backward: if the loss of a process does not use a result, add 0 * result.sum() to it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "nn/layer_division.h"
#include "parallel/axis.h"

namespace tessera::parallel {

// Returns the sum over processes. The gradient of each term is the sum of all processes' gradients.
torch::Tensor sum_over(const torch::Tensor& values, const Axis& axis);

// Returns the rows of all processes [sum of counts, …] from this process's [counts[rank], …]. The gradient of
// the rows is the sum of all processes' gradients.
torch::Tensor gather_over(const torch::Tensor& rows, const std::vector<int64_t>& counts, const Axis& axis);

// Returns this process's rows [counts[rank], …] of the sum of all `whole` [sum of counts, …].
torch::Tensor scatter_sum_over(const torch::Tensor& whole, const std::vector<int64_t>& counts,
                               const Axis& axis);

// Cuts the first dimension into one part for each process and returns the parts received, in the order of
// ranks. Throws Error if the size of the axis does not divide it.
torch::Tensor all_to_all_over(const torch::Tensor& parts, const Axis& axis);

// The processes of an axis, which divide layers. `axis` must outlive it.
class AxisDivision final : public nn::LayerDivision {
 public:
  explicit AxisDivision(const Axis& axis) : axis_(axis) {}
  int64_t rank() const override { return axis_.rank(); }
  int64_t size() const override { return axis_.size(); }
  void sum(const torch::Tensor& values) const override { axis_.sum(values); }

 private:
  const Axis& axis_;
};

// Returns the rows [count, …] of the process `by` places before (cyclic); `rows` go `by` places on.
torch::Tensor shift_over(const torch::Tensor& rows, int64_t count, int by, const Axis& axis);

}  // namespace tessera::parallel
