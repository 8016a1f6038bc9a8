// The eigenvalues of a Hessian by Lanczos' method, which those of analysis/landscape.h are tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/landscape.h"

namespace tessera::analysis {

// Returns the eigenvalues, ascending, of the Hessian restricted to the span of `steps` products (Lanczos with
// full orthogonalisation). The ends approach the least and the largest eigenvalue.
inline std::vector<double> lanczos_values(const Objective& objective, const torch::Tensor& start,
                                          int64_t steps) {
  std::vector<torch::Tensor> basis = {(start / start.norm()).to(torch::kFloat64)};
  std::vector<double> diagonal, beside;
  const int64_t most = std::min<int64_t>(steps, start.numel());
  while (std::ssize(diagonal) < most) {
    const torch::Tensor& last = basis.back();
    torch::Tensor next = hessian_times(objective, last.to(start.scalar_type())).to(torch::kFloat64);
    diagonal.push_back(last.dot(next).item<double>());
    for (int round = 0; round < 2; ++round)
      for (const torch::Tensor& other : basis) next = next - other * other.dot(next);
    const double length = next.norm().item<double>();
    if (length < 1e-10 * (1 + std::abs(diagonal[0]))) break;  // the start vector's whole Krylov space
    beside.push_back(length);
    basis.push_back(next / length);
  }
  const auto n = std::ssize(diagonal);
  torch::Tensor matrix = torch::zeros({n, n}, torch::kFloat64);
  for (int64_t i = 0; i < n; ++i) {
    matrix[i][i] = diagonal[static_cast<size_t>(i)];
    if (i + 1 < n) matrix[i][i + 1] = matrix[i + 1][i] = beside[static_cast<size_t>(i)];
  }
  const torch::Tensor values = torch::linalg_eigvalsh(matrix);
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + n};
}

}  // namespace tessera::analysis
